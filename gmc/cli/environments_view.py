"""How the list of environments, one environment's page and a trial look on a terminal and as JSON."""

import inspect
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gmc.cli.plugin_view import plugin_tables, settings_record, settings_table, unwrapped
from gmc.cli.streams import shown
from gmc.environments.base import Environment
from gmc.environments.registry import origin
from gmc.generation.trying_environments import EnvironmentTrial
from gmc.registry import Plugin


def list_record(plugin: Plugin[Environment]) -> dict[str, Any]:
    """One environment of the list as JSON."""
    record = {"name": plugin.name, "distribution": plugin.distribution, "value": plugin.value, "error": plugin.error}
    return record if plugin.cls is None else {**record, "summary": plugin.cls.summary}


def list_view(plugins: Sequence[Plugin[Environment]]) -> Group:
    """One row an environment: name, settings, one line; a table for each distribution, gmc's own first."""
    columns: dict[str, dict[str, Any]] = {"environment": {}, "settings": {"no_wrap": True}, "what it does": {"ratio": 1}}
    hint = "Details: gmc environments show NAME. Your own: gmc environments new NAME"
    return Group(*plugin_tables(plugins, columns, _list_row), Text(hint, style="dim"))


def _list_row(plugin: Plugin[Environment]) -> list[str | Text]:
    if plugin.cls is None:
        return [Text("broken", style="red"), Text(plugin.error or "")]
    return [Text(", ".join(plugin.cls.Settings.model_fields)), Text(plugin.cls.summary)]


def show_record(environment: type[Environment]) -> dict[str, Any]:
    """One environment's page as JSON."""
    return {
        "name": environment.name,
        "summary": environment.summary,
        "origin": origin(environment),
        "inline": environment.inline,
        "role": environment.role,
        "scores_turns": environment.scores_turns,
        "settings": settings_record(environment.Settings),
        "code": f"{environment.__module__}:{environment.__name__}",
        "description": inspect.cleandoc(environment.__doc__ or ""),
    }


def show_view(environment: type[Environment]) -> Group:
    """One environment's page for a terminal."""
    record = show_record(environment)
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    given = ", ".join(f"{setting['name']}=…" for setting in record["settings"])
    usage = f"--environment '{environment.name}({given})'" if given else f"--environment {environment.name}"
    answers = f"in a turn of role {environment.role}"
    if environment.inline:
        answers = "right behind what the model said"
    facts.add_row("usage", Text(usage))
    facts.add_row("answers", answers if environment.replies else "never")
    facts.add_row("from", record["origin"])
    facts.add_row("code", record["code"])
    parts: list[RenderableType] = [Text(f"{environment.name}: {environment.summary}", style="bold")]
    parts += [Padding(Text(unwrapped(record["description"])), (1, 0)), facts]
    if record["settings"]:
        parts.append(settings_table(record["settings"]))
    return Group(*parts)


def trial_view(trial: EnvironmentTrial) -> Group:
    """Problem, prompt, and each episode turn by turn."""
    problem = trial.asked.problem
    lines = [
        _row("environment", trial.spec),
        _row("problem", f"{problem.problem_id} (one of {trial.problems})"),
        _row("answer", problem.answer),
        _row("prompt", trial.asked.prompt),
    ]
    for number, episode in enumerate(trial.episodes):
        lines.append(Text(f"\nepisode {number}", style="bold"))
        lines += [_row(role, text) for role, text in episode.turns]
        score = episode.score
        worth = f"{score.reward:g}  ({score.status})" if score else "none yet: the environment waits for another --say"
        lines.append(_row("reward", worth))
    return Group(*lines)


def _row(name: str, text: str) -> Text:
    return Text.assemble((f"{name:<12} ", "dim"), shown(text))
