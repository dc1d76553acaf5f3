"""Options that several commands share, declared once; those that stand for a setting are made from the setting's field."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import typer

from gmc.cli.completion import COMPLETIONS, Completion, complete_recipes, complete_runs
from gmc.config.described import flag_of_field
from gmc.config.fields import bounds_text, choices, default_text
from gmc.config.flags import flag_of
from gmc.config.layers import field_of
from gmc.errors import UsageError

RUN_PANEL = "Run"
SETTINGS_PANEL = "Settings"

RunOption = Annotated[
    Path, typer.Option("--run", help="Run directory.", rich_help_panel=RUN_PANEL, autocompletion=complete_runs)
]
RunArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN", help="Run directory. (default: runs/default)", show_default=False, autocompletion=complete_runs
    ),
]
RunFlag = Annotated[
    Path | None,
    typer.Option(
        "--run",
        help="The same, as gmc train takes it.",
        show_default=False,
        rich_help_panel=RUN_PANEL,
        autocompletion=complete_runs,
    ),
]
"""Commands that look at a run take it either way; `looked_at` says which run is meant."""
DEFAULT_RUN = Path("runs/default")
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with what the run holds.", rich_help_panel=RUN_PANEL)]
AutoResumeOption = Annotated[
    bool,
    typer.Option(
        "--auto-resume", help="Start, or go on with what the run holds: for commands that repeat.", rich_help_panel=RUN_PANEL
    ),
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Delete the run directory and start anew.", rich_help_panel=RUN_PANEL)
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object on stdout and everything else on stderr.", rich_help_panel=RUN_PANEL),
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Print the settings in force, each with its origin, and exit.", rich_help_panel=RUN_PANEL),
]
RecipeOption = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        help="Recipe name or TOML file; an unknown name lists all.",
        autocompletion=complete_recipes,
        show_default=False,
        rich_help_panel=SETTINGS_PANEL,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting by its dotted key, such as estimator.epsilon=0.4. May be repeated.",
        show_default=False,
        rich_help_panel=SETTINGS_PANEL,
    ),
]
Command = TypeVar("Command", bound=Callable[..., None])


def resuming(resume: bool, auto_resume: bool, goes_on: Callable[[], bool]) -> bool:
    """Whether a command goes on with a run. goes_on: whether --auto-resume does. Raises `UsageError` for both flags."""
    if resume and auto_resume:
        raise UsageError("--resume goes on with a run and --auto-resume starts it or goes on: give one of them")
    return resume or (auto_resume and goes_on())


def settings_options(table: Mapping[str, str], names: Sequence[str], **panels: str) -> Callable[[Command], Command]:
    """Give a command an option for each setting named, which it receives in its `**said`.

    table: the setting behind each option's name; panels: the help panel of an option that is not in the main one.
    """
    return _with_options([_setting_option(name, table[name], panels.get(name)) for name in names])


def dataclass_options(
    cls: type[Any], panel: str | None = None, *, lists: Sequence[str] = (), without: Sequence[str] = ()
) -> Callable[[Command], Command]:
    """The same for the described fields of a dataclass; a value that is not given is None.

    panel: for those that name none; lists: fields of which several values may be given.
    """
    made = []
    for each in fields(cls):
        if "meaning" not in each.metadata or each.name in without:
            continue
        facts, plain = each.metadata, each.type is bool or each.default in (MISSING, None)
        default = facts.get("default_text") or (
            "" if plain else f"{each.default:g}" if isinstance(each.default, float) else str(each.default)
        )
        several = "; several, as 1,2,4, are compared" if each.name in lists else ""
        text = f"{facts['meaning']}{several}.{f' (default: {default})' if default else ''}"
        kind = str if each.name in lists else get_args(each.type)[0] if get_args(each.type) else each.type
        flag, metavar = flag_of_field(each), "N,N,..." if several else None
        made.append(_option(each.name, flag, kind, text, metavar, facts.get("panel", panel), facts.get("envvar")))
    return _with_options(made)


def _with_options(made: Sequence[inspect.Parameter]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        own = [each for each in inspect.signature(command).parameters.values() if each.kind is not each.VAR_KEYWORD]
        context = [each for each in own if each.annotation is typer.Context]
        rest = [each.replace(kind=each.KEYWORD_ONLY) for each in own if each not in context]
        parameters = [*context, *made, *rest]
        vars(command)["__signature__"] = inspect.Signature(parameters)  # what typer reads
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return decorate


_SPOKEN: dict[str, tuple[Any, str]] = {
    "estimator.name": (str, "NAME"),
    "eval.samples": (int, "INTEGER"),
    "eval.pass_k": (str, "K,K,..."),
}
"""How a command line says a setting that is no plain value: type and name in the help."""


def _setting_option(name: str, key: str, panel: str | None) -> inspect.Parameter:
    field = field_of(key)
    words, bounds = choices(field.annotation), bounds_text(field)
    plain: tuple[Any, str | None] = (str, f"[{'|'.join(words)}]") if words else (field.annotation, None)
    kind, metavar = _SPOKEN.get(key, plain)
    flag = f"{flag_of(name)}/--no-{name}" if kind is bool else flag_of(name)
    meaning = field.description or ""
    text = f"{meaning[0].upper()}{meaning[1:]}. (default: {default_text(field)}{'; ' if bounds else ''}{bounds})"
    return _option(name, flag, kind, text, metavar, panel, completion=COMPLETIONS.get(key))


def _option(
    name: str,
    flag: str,
    kind: Any,
    text: str,
    metavar: str | None,
    panel: str | None,
    envvar: str | None = None,
    completion: Completion | None = None,
) -> inspect.Parameter:
    option = typer.Option(
        flag, help=text, metavar=metavar, show_default=False, rich_help_panel=panel, envvar=envvar, autocompletion=completion
    )
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option])


def looked_at(argument: Path | None, flag: Path | None) -> Path:
    """The run that is meant, given as an argument or with --run. Raises `UsageError` for two of them."""
    if argument is not None and flag is not None and argument != flag:
        raise UsageError(f"{argument} and --run {flag}: give one run")
    return argument or flag or DEFAULT_RUN


def whole_numbers(flag: str, text: str, *, least: int = 0) -> list[int]:
    """The numbers of a list such as 8,16,32, each once. Raises `UsageError` for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= least for part in parts):
        raise UsageError(f"{flag} {text}: write whole numbers of at least {least}, separated by commas, such as 8,16,32")
    return [int(part) for part in dict.fromkeys(parts)]
