"""Is what a rule declares true? Names, settings, needs, on-policy weight, scope."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import get_args

import torch
from pydantic import ValidationError
from torch import Tensor

from gmc.estimators.base import Estimator, EstimatorSettings, Scope
from gmc.estimators.batch import Batch, Need, UndeclaredNeedError
from gmc.estimators.normalizer import Normalizer
from gmc.testing.batches import mix, random_batch
from gmc.testing.rule import SEEDS, Rule, assert_same
from gmc.testing.stages import run_stages


def check_declarations(rule: Rule) -> None:
    """Name, texts, scope, needs and normalizer are there and of the right kind."""
    assert issubclass(rule.cls, Estimator), "it is no subclass of gmc.estimators.base.Estimator"
    name = getattr(rule.cls, "name", "")
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name), f"name {name!r} is not lower-case words joined by hyphens"
    for text in ("summary", "formula", "reference"):
        value = getattr(rule.cls, text, "")
        assert value.strip(), f"{text} is empty"
        assert "\n" not in value, f"{text} has more than one line"
    instance = rule.declared
    assert instance.scope in get_args(Scope), f"scope {instance.scope!r} is not one of {get_args(Scope)}"
    assert all(isinstance(need, Need) for need in instance.needs), "needs holds something that is not a Need"
    assert isinstance(instance.normalizer, Normalizer), "normalizer is not a Normalizer"


def check_settings(rule: Rule) -> None:
    """Defaults validate, every setting is described, unknown keys and values outside the declared bounds are refused."""
    model = rule.cls.Settings
    assert issubclass(model, EstimatorSettings), "Settings does not derive from EstimatorSettings"
    model()
    assert _refused(model, {"no_such_setting": 1}), "an unknown setting is accepted"
    for key, field in model.model_fields.items():
        assert field.description, f"setting {key} has no description"
        for item in field.metadata:
            for bound, step in (("gt", 0.0), ("ge", -1.0), ("lt", 0.0), ("le", 1.0)):
                if hasattr(item, bound):
                    outside = getattr(item, bound) + step
                    assert _refused(model, {key: outside}), f"{key} = {outside} is accepted although it is out of range"


def _refused(model: type[EstimatorSettings], values: dict[str, object]) -> bool:
    try:
        model(**values)
    except ValidationError:
        return True
    return False


class _Reads(Mapping[Need, Tensor]):
    """What a batch brings, remembering what was read."""

    def __init__(self, brought: Mapping[Need, Tensor]) -> None:
        self._brought = brought
        self.read: set[Need] = set()

    def __getitem__(self, need: Need) -> Tensor:
        self.read.add(need)
        return self._brought[need]

    def __iter__(self) -> Iterator[Need]:
        return iter(self._brought)

    def __len__(self) -> int:
        return len(self._brought)


def check_needs(rule: Rule) -> None:
    """Every stage runs on the declared needs alone, and every declared need is read by one."""
    instance = rule.fresh()
    reads = _Reads(rule.batch(0).brought)
    batch = replace(rule.batch(0), brought=reads)
    try:
        run_stages(instance, batch)
    except UndeclaredNeedError as error:
        raise AssertionError(str(error)) from error
    undeclared = sorted(need.name for need in reads.read - instance.needs)
    assert not undeclared, f"it reads {undeclared} without declaring them"
    unread = sorted(need.name for need in instance.needs - reads.read)
    assert not unread, f"it declares {unread} but never reads them; a need costs time"


def check_on_policy_weight(rule: Rule) -> None:
    """At ratio 1 every token's gradient is the declared weight times the advantage."""
    for seed in SEEDS:
        batch = rule.batch(seed, on_policy=True)
        instance = rule.fresh()
        outcome = run_stages(instance, batch)
        expected_BT = instance.on_policy_weight * outcome.advantages_PG.reshape(-1, 1) * batch.mask_BT
        message = f"with π = μ the weight over the advantage is not the declared {instance.on_policy_weight:g}"
        assert_same(outcome.gradient_BT, expected_BT, message)


def check_scope(rule: Rule) -> None:
    """Values outside a weight's declared scope do not change it; advantages look no further than the group."""
    scope = rule.declared.scope
    if scope == "batch":
        return
    for seed in SEEDS:
        batch = rule.batch(seed)
        other = replace(random_batch(seed=seed + 100, needs=batch.brought), mask_BT=batch.mask_BT)
        draw = torch.Generator().manual_seed(seed)
        outside_P1 = torch.arange(batch.groups)[:, None] != seed % batch.groups
        rows_B = outside_P1.expand(-1, batch.group_size).reshape(-1)
        _assert_unchanged(rule, "group", batch, other, rows_B[:, None].expand_as(batch.mask_BT))
        fixed_PG = torch.randn(batch.rewards_PG.shape, generator=draw, dtype=torch.float64)
        batch = batch.with_advantages(fixed_PG)
        if scope in ("sequence", "token"):
            rows_B = torch.rand(len(rows_B), generator=draw) < 0.5
            _assert_unchanged(rule, "sequence", batch, other, rows_B[:, None].expand_as(batch.mask_BT))
        if scope == "token":
            tokens_BT = torch.rand(batch.mask_BT.shape, generator=draw) < 0.5
            _assert_unchanged(rule, "token", batch, other, tokens_BT)


def _assert_unchanged(rule: Rule, scope: Scope, batch: Batch, other: Batch, changed_BT: Tensor) -> None:
    before, after = rule.outcome(batch), rule.outcome(mix(batch, other, changed_BT))
    same_BT = batch.mask_BT & ~changed_BT
    message = f"a weight depends on values outside its own {scope}, but the declared scope is {rule.declared.scope!r}"
    assert_same(after.gradient_BT[same_BT], before.gradient_BT[same_BT], message)
