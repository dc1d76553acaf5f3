"""`gmc delays`: the installed delay models, what one does, and a new one."""

from pathlib import Path
from typing import Annotated

import typer

from gmc.cli.options import JsonOption

delays_app = typer.Typer(invoke_without_command=True)


@delays_app.callback()
def bare(context: typer.Context, json: JsonOption = False) -> None:
    """List the installed delay models; show one, or start a new one."""
    if context.invoked_subcommand is None:
        list_models(json)


@delays_app.command("list")
def list_models(json: JsonOption = False) -> None:
    """Every installed delay with the distribution it comes from, a broken one with its cause; the same without a command."""

    from gmc.cli.delays_view import list_record, list_view
    from gmc.cli.output import PlainConsole, print_json
    from gmc.delays.registry import list_delays

    plugins = list_delays()
    if json:
        print_json({"delays": [list_record(plugin) for plugin in plugins]})
    else:
        PlainConsole().print(list_view(plugins))


@delays_app.command("show")
def show(name: Annotated[str, typer.Argument(help="Name of a delay.")], json: JsonOption = False) -> None:
    """How one delay is written, what it does, and what it needs."""

    from gmc.cli.delays_view import show_record, show_view
    from gmc.cli.output import PlainConsole, print_json
    from gmc.delays.registry import load_delay

    delay = load_delay(name)
    if json:
        print_json(show_record(delay))
    else:
        PlainConsole(highlight=False).print(show_view(delay))


@delays_app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="Name of the new delay: lower-case words joined by hyphens.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to make the package in.")] = Path(),
    json: JsonOption = False,
) -> None:
    """Start an installable package with one working delay model and its test."""
    from gmc.cli.delays_new import DELAY_SCAFFOLD
    from gmc.cli.scaffold import report

    report(DELAY_SCAFFOLD, name, out, json=json, use=f"gmc train --delay {name}:3")
