"""How the list of environments, one environment's page and a trial look on a terminal and as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from gmc.cli import plugin_view
from gmc.cli.streams import shown
from gmc.environments.base import Environment
from gmc.environments.registry import origin
from gmc.generation.trying_environments import EnvironmentTrial
from gmc.registry import Plugin


def list_record(plugin: Plugin[Environment]) -> dict[str, Any]:
    """One environment of the list as JSON."""
    return plugin_view.list_record(plugin, ("summary",))


def list_view(plugins: Sequence[Plugin[Environment]]) -> Group:
    """One row an environment: name, settings, one line."""
    columns: dict[str, dict[str, Any]] = {"environment": {}, "settings": {"ratio": 1}, "what it does": {"ratio": 1}}
    hint = "Details: gmc environments show NAME. Your own: gmc environments new NAME"
    return plugin_view.list_view(plugins, columns, _list_row, hint)


def _list_row(environment: type[Environment]) -> list[str | Text]:
    return [Text(", ".join(environment.Settings.model_fields)), Text(environment.summary)]


def show_record(environment: type[Environment]) -> dict[str, Any]:
    """One environment's page as JSON."""
    facts = {name: getattr(environment, name) for name in ("inline", "role", "scores_turns")}
    settings = plugin_view.settings_record(environment.Settings)
    return plugin_view.page_record(environment, {"origin": origin(environment), **facts, "settings": settings})


def show_view(environment: type[Environment]) -> Group:
    """One environment's page for a terminal."""
    record = show_record(environment)
    call = plugin_view.call_text(record)
    answers = f"in a turn of role {environment.role}"
    if environment.inline:
        answers = "right behind what the model said"
    facts = {
        "usage": f"--environment '{call}'" if record["settings"] else f"--environment {call}",
        "answers": answers if environment.replies else "never",
        "from": record["origin"],
    }
    return plugin_view.page_view(record, facts, *plugin_view.settings_tables(record["settings"]))


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
