"""`gmc lab`: studies of rules, in exact models and over training runs. One line a subcommand."""

import typer

from gmc.cli.lab_exact import exact
from gmc.cli.lab_report import report
from gmc.cli.lab_step import step
from gmc.cli.lab_sweep import sweep
from gmc.cli.lab_toy import toy

lab_app = typer.Typer(
    no_args_is_help=True,
    help="Study rules: in exact models, in small ones, and in sweeps over training runs; report what they gave.",
)
lab_app.command("exact")(exact)
lab_app.command("toy")(toy)
lab_app.command("sweep")(sweep)
lab_app.command("report")(report)
lab_app.command("step")(step)
