"""Puts the subcommands together and turns an error that a person can cure into one line and an exit code."""

import atexit
import contextlib
import copy
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import gmc
from gmc.cli.delays import delays_app
from gmc.cli.doctor import doctor
from gmc.cli.environments import environments_app
from gmc.cli.estimators import estimators_app
from gmc.cli.eval import eval_app
from gmc.cli.exits import Exits, say_early
from gmc.cli.export import export
from gmc.cli.fleet import fleet
from gmc.cli.grade import grade
from gmc.cli.help import tidy_help
from gmc.cli.lab import lab_app
from gmc.cli.loading import announce_imports
from gmc.cli.logs import show_logs
from gmc.cli.output import INTERRUPTED, NORMAL, QUIET, VERBOSE, level, print_error, talk
from gmc.cli.panels import PANEL_OF, examples
from gmc.cli.rewards import rewards_app
from gmc.cli.rollout import rollout
from gmc.cli.runs import runs
from gmc.cli.samples import samples
from gmc.cli.shards import shards_app
from gmc.cli.simulate_delay import simulate_delay
from gmc.cli.status import status
from gmc.cli.streams import prepare_streams
from gmc.cli.train import train
from gmc.errors import GmcError, UsageError, plain_words
from gmc.training.signals import interrupt

COLLECTED_AFTER = 100_000
"""New objects between two searches for cycles. Importing torch and transformers makes many objects that stay, and with Python's
own 700 nearly a fifth of that time went into searching them again and again."""

LEVELS = {"quiet": QUIET, "verbose": VERBOSE}

HELP_NAMES = {"help_option_names": ["-h", "--help"]}


_WrongUsage: Any = typer.BadParameter.__bases__[0]
"""What click raises for options and arguments that it cannot read. Typer has a click of its own and names only its child."""


class _OneLineErrors(TyperGroup):
    """Exit codes: 0 success, 1 failed run or check, 2 wrong usage. Other exceptions are bugs and keep their traceback."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        _hide_types_of_flags(self)
        tidy_help(self)
        for below in self.commands.values():
            _take_levels(below, _level_options(self))

    def main(self, *arguments: Any, **keywords: Any) -> Any:
        """Run as a program: a wrong option or argument is one line, too."""
        try:
            code = super().main(*arguments, **{**keywords, "standalone_mode": False})
        except _WrongUsage as error:
            if not hasattr(error, "format_message") or type(error).__name__ == "NoArgsIsHelpError":
                error.show()
            else:
                print_error(_in_one_line(error))
            code = error.exit_code
        sys.exit(code if isinstance(code, int) else 0)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Refuse what is no text before anything is made: files that say it could not be written."""
        for text in args:
            if any("\ud800" <= character <= "\udfff" for character in text):
                raise typer.BadParameter(f"{os.fsencode(text)!r} is not UTF-8 text; rename the file, or type it again", ctx=ctx)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> Any:
        """With the options that typer adds late, to install completion, which take no value either."""
        return _without_types(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=[*PANEL_OF].index)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except GmcError as error:
            print_error(str(error))
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except SystemExit as error:
            if isinstance(error.__context__, BrokenPipeError):  # rich ends so where nobody reads on, as `| head` does
                raise
            # Of somebody's code: no command ends so.
            say_early(traceback.extract_tb(error.__traceback__), f"sys.exit({error.code!r})")
            raise typer.Exit(1) from error
        except OSError as error:
            if isinstance(error, BrokenPipeError) or error.strerror is None:
                raise
            where = "" if error.filename is None else f"{error.filename}: "
            print_error(f"{where}{error.strerror}")
            raise typer.Exit(1) from error


def _in_one_line(error: Any) -> str:
    text = plain_words(" ".join(error.format_message().split()).rstrip("."))
    command = "" if error.ctx is None else f" ({error.ctx.command_path} --help)"
    return f"{text[0].lower()}{text[1:]}{command}"


def _without_types(options: list[Any]) -> list[Any]:
    for option in options:
        if getattr(option, "is_flag", False) and option.metavar is None:
            option.metavar = ""
    return options


def _hide_types_of_flags(command: Any) -> None:
    """In the help of every command a flag that takes no value stands without a type: some versions of typer show `<bool>`."""
    _without_types(command.get_params(command.context_class(command, **HELP_NAMES)))
    for below in getattr(command, "commands", {}).values():
        _hide_types_of_flags(below)


def _take_levels(command: Any, levels: list[Any]) -> None:
    """Have a command and those below it take --quiet and --verbose, too: people write them last. The help names them once."""
    command.params.extend(levels)
    for below in getattr(command, "commands", {}).values():
        _take_levels(below, levels)


def _level_options(root: Any) -> list[Any]:
    """Copies of the program's own --quiet and --verbose for the commands."""
    made = []
    for option in root.params:
        if option.name in LEVELS:
            made.append(copy.copy(option))
            made[-1].hidden, made[-1].expose_value, made[-1].callback = True, False, _say(LEVELS[option.name])
    return made


def _say(wanted: int) -> Callable[[Any, Any, bool], None]:
    def callback(ctx: Any, option: Any, given: bool) -> None:
        if given:
            _talk(wanted)

    return callback


def _talk(wanted: int) -> None:
    if level() not in (NORMAL, wanted):
        raise UsageError("--quiet and --verbose: give one of them")
    talk(wanted)
    show_logs()


app = typer.Typer(
    name="gmc",
    cls=_OneLineErrors,
    help="Train language models with reinforcement learning on stale rollouts, and study how staleness hurts.",
    epilog="Start with: gmc rollout; gmc train --estimator gmc --delay 256; gmc eval",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings=HELP_NAMES,
)
_COMMANDS: dict[str, Callable[..., None]] = {
    "rollout": rollout,
    "train": train,
    "simulate-delay": simulate_delay,
    "status": status,
    "runs": runs,
    "samples": samples,
    "grade": grade,
    "export": export,
    "fleet": fleet,
    "doctor": doctor,
}
for _name, _command in _COMMANDS.items():
    app.command(_name, rich_help_panel=PANEL_OF[_name], epilog=examples(_name))(_command)
_GROUPS = {
    "eval": eval_app,
    "lab": lab_app,
    "estimators": estimators_app,
    "delays": delays_app,
    "rewards": rewards_app,
    "environments": environments_app,
    "shards": shards_app,
}
for _name, _group in _GROUPS.items():
    for _below in _group.registered_commands:
        _below.epilog = examples(f"{_name} {_below.name}")
    app.add_typer(_group, name=_name, rich_help_panel=PANEL_OF[_name], epilog=examples(_name))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gmc {gmc.__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and errors: no messages, no progress.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every message, with its time and place.")] = False,
) -> None:
    if quiet and verbose:
        raise UsageError("--quiet and --verbose: give one of them")
    talk(QUIET if quiet else VERBOSE if verbose else NORMAL)
    show_logs()
    announce_imports()


def main() -> None:
    """Run a command. One that Ctrl-C stopped dies by SIGINT once it has cleaned up, so that a shell's loop stops, too."""
    gc.set_threshold(COLLECTED_AFTER)
    prepare_streams()
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # see gmc.__main__
        signal.signal(signal.SIGINT, interrupt)
    exits = Exits()
    exits.watch()
    code: Any = 0
    try:
        app()
    except SystemExit as ended:
        code = ended.code
    exits.code = code
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
