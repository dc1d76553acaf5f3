"""Puts the subcommands together and turns an error that a person can cure into one line and an exit code."""

import atexit
import contextlib
import os
import signal
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import gmc
from gmc.cli.delays import delays_app
from gmc.cli.estimators import estimators_app
from gmc.cli.eval import eval_app
from gmc.cli.grade import grade
from gmc.cli.lab import lab_app
from gmc.cli.logs import show_logs
from gmc.cli.output import INTERRUPTED
from gmc.cli.rollout import rollout
from gmc.cli.simulate_delay import simulate_delay
from gmc.cli.status import status
from gmc.cli.streams import prepare_streams, shown
from gmc.cli.train import train
from gmc.errors import GmcError

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
HELP_ORDER = ["rollout", "train", "eval", "simulate-delay", "estimators", "delays", "lab", "grade", "status"]


class _OneLineErrors(TyperGroup):
    """Exit codes: 0 success, 1 failed run or check, 2 wrong usage. Other exceptions are bugs and keep their traceback."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        _hide_types_of_flags(self)

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=HELP_ORDER.index)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except GmcError as error:
            _say_error(str(error))
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except OSError as error:
            if isinstance(error, BrokenPipeError) or error.strerror is None:
                raise
            where = "" if error.filename is None else f"{error.filename}: "
            _say_error(f"{where}{error.strerror}")
            raise typer.Exit(1) from error


def _say_error(text: str) -> None:
    typer.echo(f"{typer.style('error:', fg='red', bold=True)} {shown(text)}", err=True)


def _hide_types_of_flags(command: Any) -> None:
    """In the help of every command a flag that takes no value stands without a type: some versions of typer show `<bool>`."""
    for option in command.get_params(command.context_class(command, **HELP_NAMES)):
        if getattr(option, "is_flag", False) and option.metavar is None:
            option.metavar = ""
    for below in getattr(command, "commands", {}).values():
        _hide_types_of_flags(below)


app = typer.Typer(
    name="gmc",
    cls=_OneLineErrors,
    help="Train language models with reinforcement learning on stale rollouts, and study how staleness hurts.",
    epilog="Start with: gmc rollout, then gmc train --estimator gmc --delay 256, then gmc eval",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings=HELP_NAMES,
)
app.command("rollout")(rollout)
app.command("train")(train)
app.add_typer(eval_app, name="eval")
app.command("simulate-delay")(simulate_delay)
app.add_typer(estimators_app, name="estimators")
app.add_typer(delays_app, name="delays")
app.add_typer(lab_app, name="lab")
app.command("grade")(grade)
app.command("status")(status)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gmc {gmc.__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    show_logs()


def main() -> None:
    """Run a command. One that Ctrl-C stopped dies by SIGINT once it has cleaned up, so that a shell's loop stops, too."""
    prepare_streams()
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # see gmc.__main__
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code: Any = 0
    try:
        app()
    except SystemExit as ended:
        code = ended.code
    if code == INTERRUPTED:
        _die_by_interrupt()
    sys.exit(code)


def _die_by_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not cut the clean-up short
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
