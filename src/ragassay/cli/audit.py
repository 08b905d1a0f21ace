"""Commands of the human audit."""

from __future__ import annotations

import typer

audit_app = typer.Typer(
    help="Let people check the labels: draw a sample, label it, measure agreement.",
    no_args_is_help=True,
)
