"""How the list of rewards, one reward's page and a trial look on a terminal and as JSON."""

import inspect
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gmc.cli.plugin_view import plugin_tables, settings_record, settings_table, unwrapped
from gmc.cli.streams import shown
from gmc.generation.trying import Trial
from gmc.registry import Plugin
from gmc.rewards.base import Reward
from gmc.rewards.registry import origin


def list_record(plugin: Plugin[Reward]) -> dict[str, Any]:
    """One reward of the list as JSON."""
    record = {"name": plugin.name, "distribution": plugin.distribution, "value": plugin.value, "error": plugin.error}
    if plugin.cls is None:
        return record
    return {**record, "summary": plugin.cls.summary, "binary": plugin.cls.binary}


def list_view(plugins: Sequence[Plugin[Reward]]) -> Group:
    """One row a reward: name, settings, one line; a table for each distribution, gmc's own first."""
    columns: dict[str, dict[str, Any]] = {"reward": {}, "settings": {"no_wrap": True}, "what it gives": {"ratio": 1}}
    tables = plugin_tables(plugins, columns, _list_row)
    hint = "Details: gmc rewards show NAME. Any Python function: --reward FILE.py:FUNCTION, tried by gmc rewards try"
    return Group(*tables, Text(hint, style="dim"))


def _list_row(plugin: Plugin[Reward]) -> list[str | Text]:
    if plugin.cls is None:
        return [Text("broken", style="red"), Text(plugin.error or "")]
    return [Text(", ".join(plugin.cls.Settings.model_fields)), Text(plugin.cls.summary)]


def show_record(reward: type[Reward]) -> dict[str, Any]:
    """One reward's page as JSON."""
    return {
        "name": reward.name,
        "summary": reward.summary,
        "origin": origin(reward),
        "binary": reward.binary,
        "settings": settings_record(reward.Settings),
        "code": f"{reward.__module__}:{reward.__name__}",
        "description": inspect.cleandoc(reward.__doc__ or ""),
    }


def show_view(reward: type[Reward]) -> Group:
    """One reward's page for a terminal."""
    record = show_record(reward)
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    given = ", ".join(f"{setting['name']}=…" for setting in record["settings"])
    facts.add_row("usage", Text(f"--reward '{reward.name}({given})=WEIGHT'" if given else f"--reward {reward.name}=WEIGHT"))
    facts.add_row("gives", "0 or 1" if reward.binary else "any number")
    facts.add_row("from", record["origin"])
    facts.add_row("code", record["code"])
    parts: list[RenderableType] = [Text(f"{reward.name}: {reward.summary}", style="bold")]
    parts += [Padding(Text(unwrapped(record["description"])), (1, 0)), facts]
    if record["settings"]:
        parts.append(settings_table(record["settings"]))
    return Group(*parts)


def trial_view(trial: Trial) -> Group:
    """Problem, prompt, and each response with all that its score holds."""
    problem = trial.samples[0].problem
    lines = [
        _row("problem", f"{problem.problem_id} (one of {trial.problems})"),
        _row("question", problem.question),
        _row("answer", problem.answer),
        *(_row(f"field {name}", str(value)) for name, value in problem.fields.items()),
        _row("prompt", trial.samples[0].prompt),
    ]
    for label, inputs in trial.given.items():
        kinds = ", ".join(f"{name}: {type(values[0]).__name__}" for name, values in inputs.items())
        lines.append(_row(f"{label} gets", f"{kinds}; trainer_state, log_extra, log_metric"))
    for number, (sample, score) in enumerate(zip(trial.samples, trial.scores, strict=True)):
        cut = ", cut off" if sample.truncated else ""
        lines += [
            Text(f"\nresponse {number}: {len(sample.token_ids)} tokens{cut}", style="bold"),
            Text(shown(sample.text)),
            _row("reward", f"{score.reward:g}  ({score.status})"),
        ]
        if len(score.parts) > 1:
            lines.append(_row("parts", ", ".join(f"{name} {value:g}" for name, value in score.parts.items())))
        if score.prediction is not None:
            lines.append(_row("prediction", score.prediction))
        if score.note:
            lines.append(_row("note", score.note))
    lines += [_row(f"logged {name}", f"{value:g}") for name, value in trial.metrics.items()]
    lines += [_row("of the file", note) for note in trial.notes]
    return Group(*lines)


def _row(name: str, text: str) -> Text:
    return Text.assemble((f"{name:<12} ", "dim"), shown(text))
