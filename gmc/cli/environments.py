"""`gmc environments`: the installed environments, what one does, a trial of any of them, and a new one."""

from pathlib import Path
from typing import Annotated

import typer

from gmc.cli.options import JsonOption, SetOption

environments_app = typer.Typer(invoke_without_command=True)


@environments_app.callback()
def bare(context: typer.Context, json: JsonOption = False) -> None:
    """List the installed environments; show one, try one, or start a new one."""
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


@environments_app.command("try")
def try_(
    environment: Annotated[str, typer.Argument(help="As for --environment: retry, 'tools(functions=my_tools.py)'.")],
    problems: Annotated[
        str | None, typer.Option("--problems", help="A problem file. (default: the built-in arithmetic)", show_default=False)
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="What plays the episodes. (default: embedded)", show_default=False)
    ] = None,
    reward: Annotated[
        list[str] | None, typer.Option("--reward", help="What is rewarded. (default: math)", show_default=False)
    ] = None,
    say: Annotated[
        list[str] | None,
        typer.Option("--say", help="A turn of the model, in place of a sampled one. May be repeated.", show_default=False),
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Episodes to sample.")] = 3,
    problem: Annotated[int, typer.Option("--problem", min=0, help="Number of the problem, from 0.")] = 0,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Play a few episodes about one problem, and show the prompt, every turn, and what each is worth."""
    from gmc.cli.environments_view import trial_view
    from gmc.cli.output import PlainConsole, print_json
    from gmc.generation.trying_environments import try_environment
    from gmc.resolving.resolve import resolve_settings

    names = {
        "rollout.environment": "ENVIRONMENT",
        "problems.source": "--problems",
        "model.source": "--model",
        "reward.parts": "--reward",
    }
    flags = dict(zip(names, (environment, problems, model, reward or None), strict=True))
    settings = resolve_settings(flags=flags, flag_names=names, assignments=set_ or ())
    trial = try_environment(settings, said=say or (), count=count, problem=problem)
    if json:
        print_json(trial.record())
    else:
        PlainConsole().print(trial_view(trial))


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
