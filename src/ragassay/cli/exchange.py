"""Commands that bring answers in from elsewhere, and out again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragassay.errors import ConfigError


def import_answers(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Answers to import.")],
) -> None:
    """Import answers from anywhere into a run folder."""
    raise ConfigError("not yet")


def export_answers(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
) -> None:
    """Export the answers of a run folder."""
    raise ConfigError("not yet")
