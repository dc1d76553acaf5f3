"""Arms as a table, as plain values, and as learning curves."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from rich.table import Table

from gmc.evaluation.arms import (
    WINDOW,
    Arm,
    OverSeeds,
    TrainedRun,
    common_window,
    interval_name,
    over_seeds,
    running_mean,
    ways_of_asking,
)
from gmc.evaluation.arms_differences import ArmDifference, arm_differences
from gmc.evaluation.report import counted
from gmc.evaluation.rewarded import format_value
from gmc.evaluation.tables import new_table
from gmc.store.files import atomic_path

LEGEND, SHORT_LABEL = 110, 36
"""Characters of a line of a legend below the axes, and of a label that has room beside them."""
NONE = "–"
NO_INTERVAL = f" ± {NONE}"
"""Of runs that are equal: nothing tells how far others would lie."""


def arm_tables(arms: Sequence[Arm]) -> Sequence[Table]:
    """Training rewards of every arm, and a table for each way in which a benchmark was asked."""
    left = (*(name.replace(".", ".\n") for name in arms[0].differing or ("arm",)), "seeds")
    binary = all(run.binary for arm in arms for run in arm.runs)
    window = common_window(arms)
    rewards = new_table(
        f"training reward{', %' if binary else ''}: {interval_name(arms)}", left, (f"last {window}", f"best {window}")
    )
    for arm in arms:
        final = over_seeds([run.final_reward(window) for run in arm.runs])
        peak = over_seeds([run.peak_reward(window) for run in arm.runs])
        rewards.add_row(*_settings(arm), _seeds(arm.runs), _value(final, binary), _value(peak, binary))
    tables: list[Table] = [rewards]
    for way, example in ways_of_asking([run for arm in arms for run in arm.runs]).items():
        names = list(example.record["scores"])
        unit = "% correct" if example.rewarded.binary else "mean reward"
        title = f"{example.record['benchmark']}, {example.record['problems']['count']} problems, {unit}: {interval_name(arms)}"
        table = new_table(title, left, tuple(names))
        for arm in arms:
            runs = [run for run in arm.runs if way in run.results]
            if runs:
                table.add_row(
                    *_settings(arm),
                    _seeds(runs),
                    *(_value(_score(runs, way, name), example.rewarded.is_binary(name)) for name in names),
                )
        tables.append(table)
    if found := arm_differences(arms):
        tables.append(_difference_table(found))
    return tables


def _difference_table(found: Sequence[ArmDifference]) -> Table:
    several = any(each.paired.seeds > 1 for each in found)
    title = f"paired by seed, mean ± 95 % interval; {counted(len(found), 'comparison')}, p by Holm over all of them"
    title = title if several else "paired by seed: one seed each, which says nothing of how another would differ"
    table = new_table(title, ("difference", "score"), ("mean", "ahead", "p"))
    for each in found:
        mean, reach = each.paired.mean, each.paired.reach
        value = f"{100 * mean:+.1f}" if each.binary else f"{mean:+.3g}"
        value += "" if reach is None else f" ± {100 * reach:.1f}" if each.binary else f" ± {reach:.3g}"
        value += NO_INTERVAL if reach is None and each.paired.seeds > 1 else ""
        table.add_row(
            f"{each.second.label} − {each.first.label}",
            each.score,
            value + (" points" if each.binary else ""),
            f"{each.ahead} of {each.paired.seeds}",
            NONE if each.holm is None else f"{each.holm:.2g}",
        )
    return table


def differences_record(arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """Every difference as plain values, for `--json`."""
    return [
        {
            "first": each.first.label,
            "second": each.second.label,
            "score": each.score,
            **asdict(each.paired),
            "binary": each.binary,
            "ahead": each.ahead,
            "holm": each.holm,
        }
        for each in arm_differences(arms)
    ]


def arms_record(arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """Every arm as plain values, for `--json`."""
    record, window = [], common_window(arms)
    for arm in arms:
        evaluations = []
        for way, example in ways_of_asking(arm.runs).items():
            runs = [run for run in arm.runs if way in run.results]
            scores = {name: asdict(_score(runs, way, name)) for name in example.record["scores"]}
            evaluations.append({"benchmark": example.record["benchmark"], "spec": example.record["spec"], "scores": scores})
        record.append(
            {
                "arm": arm.label,
                "runs": [{"run": str(run.path), "seed": run.seed, "updates": len(run.rewards_N)} for run in arm.runs],
                "reward_window": window,
                "final_reward": asdict(over_seeds([run.final_reward(window) for run in arm.runs])),
                "peak_reward": asdict(over_seeds([run.peak_reward(window) for run in arm.runs])),
                "evaluations": evaluations,
            }
        )
    return record


def dash_lines(tables: Sequence[Table]) -> list[str]:
    """Why a dash stands in the tables, where one does."""
    cells = [str(cell) for table in tables for column in table.columns for cell in column.cells]
    if not any(cell == NONE or NO_INTERVAL in cell for cell in cells):
        return []
    return [f"{NONE}: no interval or no p, for there is one seed, or all seeds agree: nothing tells how another would differ"]


def missing_lines(arms: Sequence[Arm]) -> list[str]:
    """What the tables lack: runs without an evaluation that others have, and runs that did not end."""
    runs = [run for arm in arms for run in arm.runs]
    ways = ways_of_asking(runs)
    lines = []
    for run in runs:
        missing = [ways[way].record["benchmark"] for way in ways if way not in run.results]
        if missing:
            lines.append(f"{run.path}: not evaluated as others are on {', '.join(missing)}; gmc eval --run {run.path}")
        if len(run.rewards_N) < (planned := run.settings.get("train.updates", 0)):
            lines.append(f"{run.path}: {len(run.rewards_N)} of {planned} updates are done")
    return lines


def save_curves(path: Path, arms: Sequence[Arm]) -> None:
    """Draw each arm's reward over updates: the mean over seeds of running means, and the range over seeds.

    Means are of `WINDOW` updates in a row, or of a quarter of the shortest run where that is less: short runs have a curve too.
    """
    from matplotlib.figure import Figure

    window = max(1, min(WINDOW, min(len(run.rewards_N) for arm in arms for run in arm.runs) // 4))
    labels = [fill(arm.label, LEGEND) for arm in arms]
    below = max(map(len, labels)) > SHORT_LABEL  # beside the axes it would leave them no room
    height = 4.2 + (0.2 * sum(label.count("\n") + 1 for label in labels) if below else 0)
    figure = Figure(figsize=(9.0, height), layout="constrained")
    axes = figure.subplots()
    binary = all(run.binary for arm in arms for run in arm.runs)
    scale = 100 if binary else 1
    for number, arm in enumerate(arms):
        done = min(len(run.rewards_N) for run in arm.runs)
        curves_SN = scale * np.stack([running_mean(run.rewards_N[:done], window) for run in arm.runs])
        updates = np.arange(done - curves_SN.shape[1], done)
        # Dashes as well as colors: arms may agree exactly, as gmc and tic do without a delay.
        style = ("-", "--", ":")[number % 3]
        mark = "o" if len(updates) == 1 else None  # a line of one point shows nothing
        (line,) = axes.plot(updates, curves_SN.mean(axis=0), style, label=labels[number], marker=mark)
        axes.fill_between(
            updates, curves_SN.min(axis=0), curves_SN.max(axis=0), color=line.get_color(), alpha=0.15, linewidth=0
        )
    most = max(len(arm.runs) for arm in arms)
    means = f", means of {window} updates" if window > 1 else ""
    title = f"training reward{means}" + (f"; shaded: range over {most} seeds" if most > 1 else "")
    axes.set(xlabel="update", ylabel="correct, %" if binary else "reward", title=title)
    axes.grid(alpha=0.3)
    figure.legend(fontsize="small", loc="outside lower left" if below else "outside right upper", frameon=False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lower()[1:], dpi=150)


def _score(runs: Sequence[TrainedRun], way: str, name: str) -> OverSeeds:
    return over_seeds([run.results[way].record["scores"][name]["value"] for run in runs])


def _settings(arm: Arm) -> tuple[str, ...]:
    return tuple(arm.differing.values()) or (arm.label,)


def _seeds(runs: Sequence[TrainedRun]) -> str:
    return " ".join(str(run.seed) for run in runs)


def _value(value: OverSeeds, binary: bool) -> str:
    reach = NO_INTERVAL if value.seeds > 1 else ""
    reach = reach if value.high is None else f" ± {format_value(value.high - value.mean, binary)}"
    return f"{format_value(value.mean, binary)}{reach}"
