"""`gmc estimators`: the installed rules, what one does, a new one, and all of them on stored rollouts."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from gmc.cli.estimators_compare import compare
from gmc.cli.options import JsonOption

log = logging.getLogger(__name__)

estimators_app = typer.Typer(invoke_without_command=True)


@estimators_app.callback()
def bare(context: typer.Context, json: JsonOption = False) -> None:
    """List the installed correction rules; show one, start a new one, or compare them on stored rollouts."""
    if context.invoked_subcommand is None:
        list_rules(json)


@estimators_app.command("list")
def list_rules(json: JsonOption = False) -> None:
    """Every installed rule with the distribution it comes from, a broken one with its cause; the same without a command."""

    from gmc.cli.estimators_view import list_record, list_view
    from gmc.cli.old_requirements import old_requirements
    from gmc.cli.output import PlainConsole, print_json
    from gmc.estimators.registry import list_estimators

    found = list_estimators()
    if json:
        print_json({"estimators": [list_record(one) for one in found]})
    else:
        PlainConsole().print(list_view(found))
    for line in old_requirements():
        log.warning(line)


@estimators_app.command("show")
def show(name: Annotated[str, typer.Argument(help="Name of a rule.")], json: JsonOption = False) -> None:
    """Formula, settings with defaults and ranges, reference and evidence of one rule."""

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
