"""`gmc environments`: the installed environments, what one does, and a new one."""

from pathlib import Path
from typing import Annotated

import typer

from gmc.cli.options import JsonOption

environments_app = typer.Typer(invoke_without_command=True)


@environments_app.callback()
def bare(context: typer.Context, json: JsonOption = False) -> None:
    """List the installed environments; show one, or start a new one."""
    if context.invoked_subcommand is None:
        list_all(json)


@environments_app.command("list")
def list_all(json: JsonOption = False) -> None:
    """Every installed environment with its distribution, a broken one with its cause; the same without a command."""
    from gmc.cli.environments_view import list_record, list_view
    from gmc.cli.output import PlainConsole, print_json
    from gmc.environments.registry import list_environments

    plugins = list_environments()
    if json:
        print_json({"environments": [list_record(plugin) for plugin in plugins]})
    else:
        PlainConsole().print(list_view(plugins))


@environments_app.command("show")
def show(name: Annotated[str, typer.Argument(help="Name of an environment.")], json: JsonOption = False) -> None:
    """What one environment does, and its settings."""
    from gmc.cli.environments_view import show_record, show_view
    from gmc.cli.output import PlainConsole, print_json
    from gmc.environments.registry import load_environment

    environment = load_environment(name)
    if json:
        print_json(show_record(environment))
    else:
        PlainConsole().print(show_view(environment))


@environments_app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="Name of the new environment: lower-case words joined by hyphens.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to make the package in.")] = Path(),
    json: JsonOption = False,
) -> None:
    """Start an installable package with one working environment and its test."""
    from gmc.cli.environments_new import ENVIRONMENT_SCAFFOLD
    from gmc.cli.scaffold import report

    report(ENVIRONMENT_SCAFFOLD, name, out, json=json, use=f"gmc train --environment {name}")
