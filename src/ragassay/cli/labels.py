"""Commands that label answers again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragassay.errors import ConfigError


def score(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
) -> None:
    """Label the answers of a run folder with further scorers."""
    raise ConfigError("not yet")
