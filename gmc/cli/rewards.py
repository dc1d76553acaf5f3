"""`gmc rewards`: the installed rewards, what one gives, a trial of any of them, and a new one."""

from pathlib import Path
from typing import Annotated

import typer

from gmc.cli.options import JsonOption, SetOption

rewards_app = typer.Typer(invoke_without_command=True)


@rewards_app.callback()
def bare(context: typer.Context, json: JsonOption = False) -> None:
    """List the installed rewards; show one, try one, or start a new one."""
    if context.invoked_subcommand is None:
        list_all(json)


@rewards_app.command("list")
def list_all(json: JsonOption = False) -> None:
    """Every installed reward with the distribution it comes from, a broken one with its cause; the same without a command."""
    from gmc.cli.output import PlainConsole, print_json
    from gmc.cli.rewards_view import list_record, list_view
    from gmc.rewards.registry import list_rewards

    plugins = list_rewards()
    if json:
        print_json({"rewards": [list_record(plugin) for plugin in plugins]})
    else:
        PlainConsole().print(list_view(plugins))


@rewards_app.command("show")
def show(name: Annotated[str, typer.Argument(help="Name of a reward.")], json: JsonOption = False) -> None:
    """What one reward gives, and its settings."""
    from gmc.cli.output import PlainConsole, print_json
    from gmc.cli.rewards_view import show_record, show_view
    from gmc.rewards.registry import load_reward

    reward = load_reward(name)
    if json:
        print_json(show_record(reward))
    else:
        PlainConsole().print(show_view(reward))


@rewards_app.command("try")
def try_(
    reward: Annotated[list[str], typer.Argument(help="As for --reward: math, FILE.py:FUNCTION, NAME(setting=value)=WEIGHT.")],
    problems: Annotated[
        str | None, typer.Option("--problems", help="A problem file. (default: the built-in arithmetic)", show_default=False)
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="What samples the responses. (default: embedded)", show_default=False)
    ] = None,
    response: Annotated[
        list[str] | None,
        typer.Option("--response", help="Score this text in place of a sampled one. May be repeated.", show_default=False),
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Responses to sample.")] = 3,
    problem: Annotated[int, typer.Option("--problem", min=0, help="Number of the problem, from 0.")] = 0,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Score a few responses to one problem, and show everything that goes in and comes out."""
    from gmc.cli.output import PlainConsole, print_json
    from gmc.cli.rewards_view import trial_view
    from gmc.generation.trying import try_reward
    from gmc.resolving.resolve import resolve_settings

    flags = {"reward.parts": reward, "problems.source": problems, "model.source": model}
    names = {"reward.parts": "--reward", "problems.source": "--problems", "model.source": "--model"}
    settings = resolve_settings(flags=flags, flag_names=names, assignments=set_ or ())
    trial = try_reward(settings, responses=response or (), count=count, problem=problem)
    if json:
        print_json(trial.record())
    else:
        PlainConsole().print(trial_view(trial))


@rewards_app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="Name of the new reward: lower-case words joined by hyphens.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to make the package in.")] = Path(),
    json: JsonOption = False,
) -> None:
    """Start an installable package with one working reward and its test."""
    from gmc.cli.rewards_new import REWARD_SCAFFOLD
    from gmc.cli.scaffold import report

    report(REWARD_SCAFFOLD, name, out, json=json, use=f"gmc rewards try {name}")
