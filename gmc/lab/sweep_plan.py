"""From a sweep file to its runs: arms and axes multiplied, each with complete settings, stage by stage."""

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from gmc.config.layers import Layers, check, flatten, lay, nest
from gmc.config.settings import RunSettings
from gmc.delays.registry import delay_class
from gmc.errors import GmcError, UsageError
from gmc.lab.results import flat_settings
from gmc.lab.sweep_file import Arm, Curve, Sweep
from gmc.resolving.checks import check_settings
from gmc.resolving.resolve import resolve
from gmc.store.files import strict_json

Stage = Literal["tuning", "verdict"]
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """One arm at one value of each of its axes. chosen: values that a selection chose, by axis."""

    arm: str
    values: Values
    chosen: Values

    @property
    def key(self) -> str:
        """The arm and its values, what was chosen left out."""
        return cell_key(self.arm, self.values)


@dataclass(frozen=True)
class PlannedRun:
    """One run to be made: its cell, seed and complete settings, and how it is evaluated along the way."""

    cell: Cell
    stage: Stage
    seed: int
    settings: RunSettings
    curve: Curve | None

    @cached_property
    def flat(self) -> dict[str, Any]:
        """See `flat_settings`."""
        return flat_settings(self.settings, self.curve)

    @cached_property
    def run(self) -> str:
        """A name for its folder, by what it is."""
        text = json.dumps(self.flat, sort_keys=True)
        return f"{self.cell.arm}-s{self.seed}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


Choice = Mapping[str, Values]
"""What a selection chose: `Cell.key` of the axes left, to the values of the chosen axes."""


def cell_key(arm: str, values: Values) -> str:
    """Text that tells cells apart."""
    return strict_json([arm, sorted(values.items())])


class Planner:
    """Makes the runs of a sweep. origin: the file's name, for messages and origins of settings.

    tuned: settings by arm that another sweep chose. Raises `UsageError` naming file, arm and key for settings that no run
    could have.
    """

    def __init__(self, sweep: Sweep, origin: str, tuned: Mapping[str, Values] | None = None) -> None:
        self.sweep = sweep
        self._origin = origin
        self._tuned = tuned or {}
        self._checked: set[tuple[str, int, str]] = set()
        self._base = lay(recipe=sweep.recipe)
        self._lay(self._base, sweep.settings, "[settings]")

    def tuning(self) -> list[PlannedRun]:
        """The runs that choose; none without a [select]."""
        select = self.sweep.select
        if select is None:
            return []
        cells = [cell for arm in self.sweep.arms for cell in self._cells(arm, self._axes(arm))]
        return self._runs(cells, "tuning", select.seeds, [(select.settings, "[select.settings]")])

    def verdict(self, choice: Choice) -> list[PlannedRun]:
        """The runs of the verdict: all of them without a [select], else those of the cells in `choice`."""
        sweep, cells = self.sweep, []
        for arm in sweep.arms:
            axes = {key: values for key, values in self._axes(arm).items() if key not in self.selected}
            for cell in self._cells(arm, axes | sweep.verdict.axes):
                known = {key: value for key, value in cell.values.items() if key in axes and key not in sweep.verdict.axes}
                found = self._chosen(choice, arm, known)
                if found is not None:
                    cells.append(Cell(arm, cell.values, found))
        return self._runs(cells, "verdict", sweep.seeds, [(sweep.verdict.settings, "[verdict.settings]")])

    def first_values(self) -> dict[str, Values]:
        """What stands for a choice before there is one: the first value of each axis that is to be chosen."""
        found: dict[str, Values] = {}
        for arm in self.sweep.arms:
            for cell in self._cells(arm, self._axes(arm)):
                rest = {key: value for key, value in cell.values.items() if key not in self.selected}
                first = {key: value for key, value in cell.values.items() if key in self.selected}
                found.setdefault(cell_key(arm, rest), first)
        return found

    @property
    def selected(self) -> frozenset[str]:
        """The axes that the selection chooses."""
        return frozenset(self.sweep.select.axes if self.sweep.select else ())

    def verdict_cells(self) -> int:
        """How many cells the verdict has when every arm has its choice."""
        verdict = self.sweep.verdict.axes
        return sum(
            len([*self._cells(arm, {k: v for k, v in self._axes(arm).items() if k not in self.selected} | verdict)])
            for arm in self.sweep.arms
        )

    def _chosen(self, choice: Choice, arm: str, known: Values) -> Values | None:
        """The choice for a cell. An axis that only the verdict varies takes the choice made at the value of [settings]."""
        return {} if self.sweep.select is None else choice.get(cell_key(arm, known))

    def _axes(self, arm: str) -> dict[str, list[Any]]:
        return {**self.sweep.axes, **self.sweep.arms[arm].axes}

    def _cells(self, arm: str, axes: Mapping[str, Sequence[Any]]) -> Iterator[Cell]:
        for values in itertools.product(*axes.values()):
            yield Cell(arm, dict(zip(axes, values, strict=True)), {})

    def _runs(
        self, cells: Sequence[Cell], stage: Stage, seeds: Sequence[int], extra: Sequence[tuple[Values, str]]
    ) -> list[PlannedRun]:
        resolved = [(cell, self._resolve(cell, self._layers(cell, extra), seeds[0])) for cell in cells]
        return [
            PlannedRun(cell, stage, seed, settings.model_copy(update={"seed": seed}), self.sweep.curve)
            for seed in seeds
            for cell, settings in resolved
        ]

    def _layers(self, cell: Cell, extra: Sequence[tuple[Values, str]]) -> Layers:
        arm = self.sweep.arms[cell.arm]
        layers = self._base.only(lambda key: True)
        self._lay(layers, _rule_of(arm, self.sweep, cell.arm), f"[arms.{cell.arm}]")
        self._lay(layers, self._tuned.get(cell.arm, {}), "tuned")
        self._lay(layers, arm.settings, f"[arms.{cell.arm}.settings]")
        self._lay(layers, as_settings({**cell.values, **cell.chosen}), f"[arms.{cell.arm}], axes")
        for tree, where in extra:
            self._lay(layers, tree, where)
        if self.sweep.curve:
            self._lay(layers, {"train": {"publish_every": self.sweep.curve.every}}, "[curve]")
        return layers

    def _resolve(self, cell: Cell, layers: Layers, seed: int) -> RunSettings:
        laid = layers.only(lambda key: True)
        laid.set("seed", seed, f"{self._origin}, seeds")
        try:
            settings = resolve(laid)
            checked = (settings.delay, settings.train.updates, settings.rollout.model_dump_json())
            if checked not in self._checked:  # finding plug-ins is slow, and cells mostly share them
                check_settings(settings)
                _refuse_without_rollouts(settings)
                self._checked.add(checked)
        except GmcError as error:
            raise UsageError(f"{self._origin}: arm {cell_text(cell)}: {error}") from error
        return settings

    def _lay(self, layers: Layers, tree: Values, where: str) -> None:
        if tree:
            layers.set_all(check(_nested(tree), f"{self._origin} {where}"), f"{self._origin} {where}")


def _refuse_without_rollouts(settings: RunSettings) -> None:
    if not delay_class(settings.delay).generates:
        raise UsageError(
            f"--delay {settings.delay} trains on rollouts made elsewhere, and the runs of a sweep begin without any; give each "
            "run its rollouts (gmc train --rollouts), or choose a delay that samples (gmc delays)"
        )


def as_settings(values: Values) -> dict[str, Any]:
    """The settings behind values of axes: an axis of tables says settings that change together.

    >>> as_settings({"train.updates": 4, "shape": {"rollout": {"prompts": 2}}})
    {'train.updates': 4, 'rollout.prompts': 2}
    """
    settings: dict[str, Any] = {}
    for key, value in values.items():
        settings |= dict(flatten(value)) if isinstance(value, Mapping) else {key: value}
    return settings


def cell_text(cell: Cell) -> str:
    """A cell for people: "gmc, epsilon 0.28, learning_rate 0.0004"."""
    return ", ".join([cell.arm, *values_text({**cell.values, **cell.chosen})])


def values_text(values: Values) -> list[str]:
    """Values of axes for people, by the last word of each key: "epsilon 0.28"; an axis of tables by what it says."""
    said = [
        each for key, value in values.items() for each in (flatten(value) if isinstance(value, Mapping) else [(key, value)])
    ]
    return [f"{key.rpartition('.')[2]} {value_text(value)}" for key, value in said]


def value_text(value: Any) -> str:
    """A value for people."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _rule_of(arm: Arm, sweep: Sweep, name: str) -> dict[str, Any]:
    """The arm's rule, said before anything else of it: naming another rule later would take back its settings."""
    for settings in (dict(flatten(arm.settings)), dict(flatten(sweep.settings))):
        for key in ("estimator", "estimator.name"):
            if key in settings:
                return {key: settings[key]}
    varied = {"estimator", "estimator.name"} & {*arm.axes, *sweep.axes}
    return {} if varied else {"estimator": name}


def _nested(tree: Values) -> dict[str, Any]:
    """Settings said by dotted key, by table, or both, as one tree."""
    nested: dict[str, Any] = {}
    for key, value in flatten(tree):
        _merge(nested, nest(key, value))
    return nested


def _merge(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
