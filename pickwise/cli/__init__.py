"""The command line. The only place in this package that calls its siblings, and only when a command runs."""

from __future__ import annotations

import sys

import typer
from rich.console import Console

from pickwise.cli import answers, data, learn, run
from pickwise.cli.options import UserError

app = typer.Typer(
    name="pickwise",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    help="See which tools your agents pick, which fail, and learn from it.\n\n"
    "Start with `pickwise serve`, point an OTLP exporter at it "
    "(`OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318`), then read `pickwise report`.",
)
for module in (run, data, answers, learn):
    module.register(app)


def main() -> None:
    """Entry point: an expected error is one line on stderr and exit code 1, never a traceback."""
    try:
        app()
    except UserError as error:
        Console(stderr=True, highlight=False).print(f"[red]error:[/red] {error}", soft_wrap=True)
        sys.exit(1)
