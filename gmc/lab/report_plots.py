"""The plots of a report as SVG texts. Sized to stay readable on a phone; arms differ by color and by dash."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gmc.evaluation.statistics import seed_interval
from gmc.lab.measures import curve_points, final_score
from gmc.lab.report_input import ReportArm, ReportInput
from gmc.lab.report_numbers import Difference, drop, of_runs, trained
from gmc.lab.results import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_INCHES, HEIGHT_INCHES = 4.6, 3.2
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d31")
DASHES = ("-", "--", "-.", ":")
MOST_CONTEXTS = 6
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "gmc",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


@dataclass(frozen=True)
class Plot:
    """name: of its place in the page; how: to read it."""

    name: str
    title: str
    svg: str
    how: str


Line = tuple[Sequence[float], Sequence[float]]


def plots_of(found: ReportInput, compared: Sequence[Difference]) -> list[Plot]:
    """Every plot for which there are data."""
    made = [
        *_curves(found, "curve", "Score", lambda run: _unzip(curve_points(run)), HOW_CURVE),
        *_curves(found, "reward", "Training reward", _over_updates("reward/mean"), HOW_REWARD),
        _forest(found, compared),
        _against_delay(found),
        *_tuning(found),
        _stability(found),
        _against_age(found, "ratio/ess_share", "ess", "Effective sample size against delay", "ESS, share", HOW_ESS),
        _against_age(found, "ratio/removed_mass", "removed", "Removed mass against delay", "removed mass", HOW_REMOVED),
        *_curves(found, "delay", "Delay", _over_updates("delay/mean"), HOW_DELAYS, "mean delay, updates"),
        *_curves(found, "length", "Length of responses", _over_updates("response/length_mean"), HOW_LENGTH, "tokens"),
    ]
    return [plot for plot in made if plot is not None]


HOW_CURVE = (
    "Lines are means over seeds, bands Student's 95 % interval of that mean. All runs start from the same model, so the band "
    "has no width at 0. Judge differences by the paired plot: bands may overlap although a difference is certain."
)
HOW_REWARD = (
    "Mean reward of the rollouts that the updates trained on, over twentieths of a run. At a delay D these were made D updates "
    "earlier, so this trails the policy; the score does not."
)
HOW_DELAYS = (
    "How many updates old the rollouts were that the updates trained on, over twentieths of a run. A run that starts with a "
    "full queue of version 0 climbs until the queue is through."
)
HOW_LENGTH = (
    "Mean length of the responses that the updates trained on. Where it falls to a few tokens or climbs to the limit, look at "
    "what was sampled: gmc samples RUN."
)
HOW_FOREST = (
    "Each point is a mean of differences of runs that share a seed, its line the 95 % interval of that mean. Right of zero the "
    "first-named arm is better. Filled: Holm's p-value over all comparisons is below 0.05; hollow: it may be chance."
)
HOW_DELAY = "Final score against the mean delay that was measured, mean over seeds with its 95 % interval."
HOW_TUNING = (
    "Score on the tuning seeds for each rate, one line a cap; dots are single runs. A flat top means that the choice "
    "hardly matters, a rise at the edge that the best value lies beyond."
)
HOW_STABILITY = (
    "The deepest fall of a run's curve of scores below its best so far: a dot a run, a bar their mean. Zero means that the "
    "score never fell at the points evaluated; a few points are the noise of one evaluation."
)
HOW_ESS = (
    "Effective sample size of the raw ratios in each twentieth of a run against the mean delay there, means over seeds. Where "
    "it nears 1/64 a single response carries a batch of 64. Lines may turn back where the delay stays and the policy moves on."
)
HOW_REMOVED = (
    "Mass (ρ̄ − 1 − ε)₊ that lies above each rule's own cap, in the same stretches. More mass means more bias, and a threshold "
    "that binds. For rules without a cap ε = 0.28 is used."
)


def _figure(rows: int = 1) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES * rows), layout="constrained")


def _svg(draw: Callable[["Figure"], None], height: float = 1.0) -> str:
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figure = _figure()
        figure.set_figheight(HEIGHT_INCHES * height)
        draw(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _scale(found: ReportInput) -> float:
    return 100.0 if found.binary else 1.0


def _unit(found: ReportInput) -> str:
    return "correct, %" if found.binary else "reward"


def _styles(arms: Sequence[ReportArm]) -> Mapping[str, tuple[str, str]]:
    names = list(dict.fromkeys(arm.name for arm in arms))
    return {name: (COLORS[n % len(COLORS)], DASHES[n % len(DASHES)]) for n, name in enumerate(names)}


def _unzip(points: Sequence[tuple[int, float]]) -> Line | None:
    return None if len(points) < 2 else ([p[0] for p in points], [p[1] for p in points])


def _windows(run: RunRecord, x: str, y: str) -> Line | None:
    pairs = [(a, b) for a, b in zip(run.windows.get(x, ()), run.windows.get(y, ()), strict=False) if None not in (a, b)]
    return None if len(pairs) < 2 else ([float(a or 0) for a, _ in pairs], [float(b or 0) for _, b in pairs])


def _over_updates(metric: str) -> Callable[[RunRecord], Line | None]:
    return lambda run: _windows(run, "update", metric)


def _curves(
    found: ReportInput, name: str, title: str, line: Callable[[RunRecord], Line | None], how: str, unit: str = ""
) -> list[Plot | None]:
    """A plot for each setting of the other axes. unit: of y, where that is no score and no reward."""
    plots: list[Plot | None] = []
    styles = _styles(found.arms)
    scale = 1.0 if unit else _scale(found)
    for place, context in enumerate(found.contexts()[:MOST_CONTEXTS]):
        arms = [(arm, [each for run in arm.runs if (each := line(run))]) for arm in found.arms if arm.context == context]
        shown = [(arm, lines) for arm, lines in arms if lines]
        if not shown:
            continue

        def draw(figure: "Figure", shown: list[tuple[ReportArm, list[Line]]] = shown) -> None:
            axes = figure.subplots()
            for arm, lines in shown:
                _band(axes, arm.name, lines, styles[arm.name], scale)
            axes.set(xlabel="update", ylabel=unit or _unit(found))
            figure.legend(loc="outside lower center", ncols=3)

        where = f": {context}" if context else ""
        plots.append(Plot(f"{name}-{place}", title + where, _svg(draw, 1.15), how))
    return plots


def _band(axes: "Axes", label: str, lines: Sequence[Line], style: tuple[str, str], scale: float) -> None:
    """Mean and interval where all runs have a point."""
    common = sorted(set.intersection(*(set(xs) for xs, _ in lines)))
    values = scale * np.array([[ys[list(xs).index(x)] for x in common] for xs, ys in lines])
    axes.plot(common, values.mean(axis=0), style[1], color=style[0], label=label, marker="o", markersize=2.5)
    if len(lines) > 1:  # runs that are equal, as all are at update 0, have no interval: the band has no width there
        intervals = [seed_interval(column.tolist()) or (column.mean(), column.mean()) for column in values.T]
        low, high = np.array(intervals, dtype=float).T
        axes.fill_between(common, low, high, color=style[0], alpha=0.15, linewidth=0)


def _forest(found: ReportInput, compared: Sequence[Difference]) -> Plot | None:
    known, scale = [each for each in compared if each.paired.reach is not None], _scale(found)
    if not known:
        return None

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        for place, each in enumerate(reversed(known)):
            sure = each.holm is not None and each.holm < 0.05
            mean, reach = scale * each.paired.mean, scale * (each.paired.reach or 0.0)
            axes.errorbar(
                mean, place, xerr=reach, fmt="o", color=COLORS[0], markerfacecolor=COLORS[0] if sure else "white", capsize=2
            )
        labels = ["\n".join(filter(None, _forest_label(each, known))) for each in reversed(known)]
        axes.set_yticks(range(len(known)), labels, fontsize=8)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set(xlabel="difference, points" if found.binary else "difference of rewards", ylim=(-0.6, len(known) - 0.4))

    return Plot("forest", "Paired differences", _svg(draw, max(0.6, 0.17 * len(known) + 0.3)), HOW_FOREST)


def _forest_label(each: Difference, known: Sequence[Difference]) -> tuple[str, str]:
    several = len({other.measure for other in known}) > 1
    short = {"final": "final", "area": "area"}[each.measure] if several else ""
    context = each.first.context if len(each.first.context) < 30 else f"{each.first.context[:28]}…"
    return f"{each.second.name} − {each.first.name} {short}".strip(), context


def _against_delay(found: ReportInput) -> Plot | None:
    points: dict[str, list[tuple[float, float, float]]] = {}
    scale = _scale(found)
    for arm in found.arms:
        delay, score = of_runs(arm, trained("delay_mean")), of_runs(arm, final_score)
        if delay is not None and score is not None:
            points.setdefault(arm.name, []).append((delay.mean, scale * score.mean, scale * (score.reach or 0.0)))
    delays = {round(x, 1) for each in points.values() for x, _, _ in each}
    if len(delays) < 2:
        return None
    styles = _styles(found.arms)

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        for name, each in points.items():
            xs, ys, reach = zip(*sorted(each), strict=True)
            axes.errorbar(
                xs, ys, yerr=reach, label=name, color=styles[name][0], linestyle=styles[name][1], marker="o", capsize=2
            )
        axes.set(xlabel="mean delay, updates", ylabel=f"final score: {_unit(found)}")
        figure.legend(loc="outside lower center", ncols=3)

    return Plot("delay", "Score against delay", _svg(draw, 1.15), HOW_DELAY)


def _tuning(found: ReportInput) -> list[Plot | None]:
    """For each arm with a rate among its tuned axes: score against rate, a line for each value of the other."""
    plots: list[Plot | None] = []
    arms = list(dict.fromkeys((each.arm, tuple(sorted(map(str, each.rest.items())))) for _, each, _ in found.tuned))
    for place, (arm, rest) in enumerate(arms):
        cells = [each for _, each, _ in found.tuned if (each.arm, tuple(sorted(map(str, each.rest.items())))) == (arm, rest)]
        lines: dict[str, list[tuple[float, list[float]]]] = {}
        for each in cells:
            rate = each.chosen.get("optimizer.learning_rate")
            known = [_scale(found) * score for score in each.scores if score is not None]
            if isinstance(rate, float) and known:
                other = [f"{k.rpartition('.')[2]} {v}" for k, v in each.chosen.items() if k != "optimizer.learning_rate"]
                lines.setdefault(", ".join(other) or arm, []).append((rate, known))
        if max((len(line) for line in lines.values()), default=0) < 2:
            continue

        def draw(figure: "Figure", lines: dict[str, list[tuple[float, list[float]]]] = lines) -> None:
            axes = figure.subplots()
            for number, (label, cells) in enumerate(lines.items()):
                color, ordered = COLORS[number % len(COLORS)], sorted(cells)
                rates = [rate for rate, _ in ordered]
                axes.plot(rates, [np.mean(ys) for _, ys in ordered], DASHES[number % 4], color=color, label=label)
                axes.scatter([r for r, ys in ordered for _ in ys], [y for _, ys in ordered for y in ys], color=color, s=12)
            ticks = sorted({rate for cells in lines.values() for rate, _ in cells})
            axes.set(xscale="log", xlabel="learning rate", ylabel=_unit(found))
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.minorticks_off()
            figure.legend(loc="outside lower center", ncols=2)

        where = f", {', '.join(rest)}" if rest else ""
        plots.append(Plot(f"tuning-{place}", f"Score against cap and rate: {arm}{where}", _svg(draw, 1.15), HOW_TUNING))
    return plots


def _stability(found: ReportInput) -> Plot | None:
    drops = [(arm, [_scale(found) * d for run in arm.runs if (d := drop(run)) is not None]) for arm in found.arms]
    shown = [(arm, values) for arm, values in drops if values]
    if not shown:
        return None
    styles = _styles(found.arms)

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        for place, (arm, values) in enumerate(reversed(shown)):
            axes.barh(place, np.mean(values), color=styles[arm.name][0], alpha=0.35)
            axes.scatter(values, [place] * len(values), color=styles[arm.name][0], s=12, zorder=3)
        labels = ["\n".join(filter(None, (arm.name, arm.context[:28]))) for arm, _ in reversed(shown)]
        axes.set_yticks(range(len(shown)), labels, fontsize=8)
        axes.set(xlabel="worst drop, points" if found.binary else "worst drop of the reward")

    return Plot("stability", "Stability", _svg(draw, max(0.6, 0.15 * len(shown) + 0.3)), HOW_STABILITY)


def _against_age(found: ReportInput, metric: str, name: str, title: str, ylabel: str, how: str) -> Plot | None:
    lines: list[tuple[ReportArm, list[float], list[float]]] = []
    for arm in found.arms:
        each = [line for run in arm.runs if (line := _windows(run, "delay/mean", metric))]
        if each and max(each[0][0]) > 0:
            length = min(len(xs) for xs, _ in each)
            xs, ys = (np.mean([line[side][:length] for line in each], axis=0).tolist() for side in (0, 1))
            lines.append((arm, xs, ys))
    if not lines:
        return None
    styles, named = _styles(found.arms), set()

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        for arm, xs, ys in lines:
            label = None if arm.name in named else arm.name
            named.add(arm.name)
            axes.plot(xs, ys, styles[arm.name][1], color=styles[arm.name][0], label=label, marker="o", markersize=2)
        axes.set(xlabel="mean delay, updates", ylabel=ylabel, ylim=(0, None))
        figure.legend(loc="outside lower center", ncols=3)

    return Plot(name, title, _svg(draw, 1.15), how)
