"""How the list of rewards, one reward's page and a trial look on a terminal and as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from gmc.cli import plugin_view
from gmc.cli.streams import shown
from gmc.generation.trying import Trial
from gmc.registry import Plugin
from gmc.rewards.base import Reward
from gmc.rewards.registry import origin


def list_record(plugin: Plugin[Reward]) -> dict[str, Any]:
    """One reward of the list as JSON."""
    return plugin_view.list_record(plugin, ("summary", "binary"))


def list_view(plugins: Sequence[Plugin[Reward]]) -> Group:
    """One row a reward: name, settings, one line."""
    columns: dict[str, dict[str, Any]] = {"reward": {}, "settings": {"ratio": 1}, "what it gives": {"ratio": 1}}
    hint = "Details: gmc rewards show NAME. Any Python function: --reward FILE.py:FUNCTION, tried by gmc rewards try"
    return plugin_view.list_view(plugins, columns, _list_row, hint)


def _list_row(reward: type[Reward]) -> list[str | Text]:
    return [Text(", ".join(reward.Settings.model_fields)), Text(reward.summary)]


def show_record(reward: type[Reward]) -> dict[str, Any]:
    """One reward's page as JSON."""
    facts = {"origin": origin(reward), "binary": reward.binary, "settings": plugin_view.settings_record(reward.Settings)}
    return plugin_view.page_record(reward, facts)


def show_view(reward: type[Reward]) -> Group:
    """One reward's page for a terminal."""
    record = show_record(reward)
    call = plugin_view.call_text(record)
    facts = {
        "usage": f"--reward '{call}=WEIGHT'" if record["settings"] else f"--reward {call}=WEIGHT",
        "gives": "0 or 1" if reward.binary else "any number",
        "from": record["origin"],
    }
    return plugin_view.page_view(record, facts, *plugin_view.settings_tables(record["settings"]))


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
