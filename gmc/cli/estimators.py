"""`gmc estimators`: the installed rules, what one does, a new one, and all of them on stored rollouts."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gmc.cli.estimators_compare import compare
from gmc.cli.options import JsonOption

if TYPE_CHECKING:
    from gmc.estimators.registry import Found

log = logging.getLogger(__name__)

Level = Literal["token", "sequence", "group", "batch"]  # the rules' `Scope`, without loading torch for --help

estimators_app = typer.Typer(invoke_without_command=True)


@estimators_app.callback()
def bare(context: typer.Context, json: JsonOption = False) -> None:
    """List the installed correction rules; show one, start a new one, or compare them on stored rollouts."""
    if context.invoked_subcommand is None:
        list_rules(json=json)


@estimators_app.command("list")
def list_rules(
    text: Annotated[str, typer.Argument(help="Only rules whose name or summary has this text.")] = "",
    scope: Annotated[Level | None, typer.Option("--scope", help="Only rules that weigh at this level.")] = None,
    json: JsonOption = False,
) -> None:
    """Every installed rule with the distribution it comes from, a broken one with its cause; the same without a command."""

    from gmc.cli.estimators_view import list_record, list_view
    from gmc.cli.old_requirements import old_requirements
    from gmc.cli.output import PlainConsole, print_json
    from gmc.estimators.registry import list_estimators

    found = [rule for rule in list_estimators() if _is_asked(rule, text, scope)]
    if json:
        print_json({"estimators": [list_record(one) for one in found]})
    elif found:
        PlainConsole().print(list_view(found))
    else:
        asked = " and ".join([f"{text!r} in its name or summary"] * bool(text) + [f"the scope {scope}"] * bool(scope))
        log.warning("no installed rule has %s: gmc estimators list shows all of them", asked)
    for line in old_requirements():
        log.warning(line)


def _is_asked(found: "Found", text: str, scope: str | None) -> bool:
    """A broken rule has a name and neither summary nor scope."""
    rule = found.estimator
    words = f"{found.name} {rule.summary if rule else ''}".lower()
    return text.lower() in words and (scope is None or (rule is not None and rule().scope == scope))


@estimators_app.command("show")
def show(name: Annotated[str, typer.Argument(help="Name of a rule.")], json: JsonOption = False) -> None:
    """Formula, settings with defaults and ranges, reference and evidence of one rule."""

    from gmc.estimators.names import require_estimators

    require_estimators([name])
    from gmc.cli.estimators_view import show_record, show_view
    from gmc.cli.output import PlainConsole, print_json
    from gmc.estimators.registry import load_estimator

    rule = load_estimator(name)
    if json:
        print_json(show_record(rule))
    else:
        PlainConsole(highlight=False).print(show_view(rule))


@estimators_app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="Name of the new rule: lower-case words joined by hyphens.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to make the package in.")] = Path(),
    json: JsonOption = False,
) -> None:
    """Start an installable package with one working rule and its test."""
    from gmc.cli.estimators_new import RULE_SCAFFOLD
    from gmc.cli.scaffold import report

    report(RULE_SCAFFOLD, name, out, json=json, use=f"gmc train --estimator {name}")


estimators_app.command("compare")(compare)
