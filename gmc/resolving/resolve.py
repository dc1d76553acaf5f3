"""From what the layers say to the settings in force: every value that nobody said is chosen here, once, before anything runs.

What hangs on the device is chosen on the machine where the command starts, and saved. `--resume` keeps it: on other hardware
`--set model.device=cpu` (or `auto`, to choose again) moves the run, and the dtype of its products stays as it was saved.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from pydantic import ValidationError

from gmc.config.fields import ByModel, derived
from gmc.config.layers import DEFAULT, FIELDS, Layers, flatten, lay, unflatten
from gmc.config.settings import OTHERS, RunSettings
from gmc.environments.build import code_files
from gmc.environments.build import complete as complete_environment
from gmc.errors import UsageError, plain_words
from gmc.estimators.base import Estimator
from gmc.estimators.batch import Need
from gmc.estimators.composition import ComposedEstimator
from gmc.estimators.registry import build_estimator
from gmc.gradients.assemble import require_both_kinds
from gmc.problems.benchmarks import DEFAULT_SAMPLES, select_benchmarks
from gmc.problems.templates import default_template, get_template
from gmc.ranks import coming_ranks
from gmc.resolving.earlier import traced
from gmc.rewards.build import code_hashes, complete, file_hashes

RULE = "estimator."
DEVICE = "device"
ENVIRONMENT = "rollout.environment"


def resolve(layers: Layers) -> RunSettings:
    """Every setting with the value in force and its origin.

    Raises `UsageError` for a rule, a benchmark or a template that is not there, for a setting that the rule refuses, and for
    log-probs of one kind where the rule needs both; it names the file in which an earlier command saved it.
    """
    try:
        return _resolved(layers)
    except UsageError as error:
        raise traced(error, layers, _resolved) from error


def _resolved(layers: Layers) -> RunSettings:
    values, origins = dict(layers.values), dict(layers.origins)
    rule = _build_rule(values)
    _fill_rule(rule, values, origins)
    _fill_reward(values, origins)
    _fill_environment(values, origins)
    for key, field in FIELDS.items():
        choice = derived(field)
        if key in values or key == "estimator":
            continue
        if choice is None:
            values[key], origins[key] = field.get_default(call_default_factory=True), DEFAULT
        elif isinstance(choice, ByModel):
            values[key], origins[key] = choice.choose(values[choice.on]), choice.origin
        elif key in _CHOOSE:
            values[key], origins[key] = _CHOOSE[key](values), choice.origin
    for key, value in {"rollout.entropies": Need.BEHAVIOR_ENTROPY in rule.needs, "train.normalizer": rule.normalizer}.items():
        if key not in values or (value is True and not values[key]):
            values[key], origins[key] = value, "rule"
    if Need.ENGINE_LOGP in rule.needs:
        require_both_kinds(values["rollout.logprobs"])
    _fill_samples(values, origins)
    get_template(values["problems.template"])
    try:
        settings = RunSettings.model_validate(unflatten(values))
    except ValidationError as error:  # each layer was checked, so what is wrong stands in a file that a command saved
        problem = error.errors()[0]
        key, why = ".".join(map(str, problem["loc"])), plain_words(problem["msg"])
        raise UsageError(f"settings: {key} = {problem['input']!r}: {why}") from error
    settings = settings.with_origins({key: origins[key] for key in values})
    return _fit_memory(settings) if settings.model.device.startswith("cuda") else settings


def _fit_memory(settings: RunSettings) -> RunSettings:
    """The settings with a token budget and checkpointing that fit this GPU, where they were not said."""
    from gmc.resolving.memory import fitted_plan, gpu_bytes

    capacity = gpu_bytes()
    if capacity is None or all(settings.origins[key] != DEVICE for key in FIT_MEMORY):
        return settings
    plan = fitted_plan(settings, capacity, coming_ranks())
    chosen = {
        "tokens_per_micro_batch": plan.token_budget,
        "activation_checkpointing": plan.checkpointing,
        "sharding": "full" if plan.ranks > 1 else settings.train.sharding,
    }
    return settings.model_copy(update={"train": settings.train.model_copy(update=chosen)})


def resolve_settings(
    *,
    earlier: Layers | None = None,
    recipe: str | None = None,
    flags: Mapping[str, Any] | None = None,
    flag_names: Mapping[str, str] | None = None,
    assignments: Sequence[str] = (),
) -> RunSettings:
    """`gmc.config.lay`, resolved."""
    return resolve(lay(earlier=earlier, recipe=recipe, flags=flags, flag_names=flag_names, assignments=assignments))


def rule_settings(rule: Estimator) -> dict[str, Any]:
    """Every setting of a rule with the value in force, those of the rule that it wraps included."""
    own: dict[str, Any] = rule.settings.model_dump(mode="json")
    if isinstance(rule, ComposedEstimator):
        own["base"] = {"name": rule.settings.base.name, **rule_settings(rule.base)}
    return own


def _build_rule(values: Mapping[str, Any]) -> Estimator:
    said = unflatten({key.removeprefix(RULE): value for key, value in values.items() if key.startswith(RULE)})
    name = said.pop("name")
    if not isinstance(name, str):
        raise UsageError(f"estimator.name = {name!r}: is the name of a rule; gmc estimators lists them")
    # A table that holds a name alone is the name: a rule may take it as plain text.
    named = {key: value["name"] for key, value in said.items() if isinstance(value, Mapping) and [*value] == ["name"]}
    return build_estimator(name, said | named)


def _fill_rule(rule: Estimator, values: dict[str, Any], origins: dict[str, str]) -> None:
    """Put the rule's own settings in place of what was said of them, in the form that the rule gives them."""
    name = values["estimator.name"]
    said = {key for key in values if key.startswith(RULE)}
    for key in said:
        del values[key]
    for key, value in flatten({"estimator": {"name": name, **rule_settings(rule)}}):
        values[key] = value
        origins.setdefault(key, "rule")


def _fill_reward(values: dict[str, Any], origins: dict[str, str]) -> None:
    """Every setting of every part, and the hash of the code: a run goes on with the functions that it began with."""
    said = values.get("reward.parts", FIELDS["reward.parts"].get_default(call_default_factory=True))
    values["reward.parts"] = complete([said] if isinstance(said, str) else said)
    origins.setdefault("reward.parts", DEFAULT)
    _fill_code(code_hashes(values["reward.parts"]), "reward.code", values, origins)


def _fill_environment(values: dict[str, Any], origins: dict[str, str]) -> None:
    """Every setting of the environment, and the hash of its code."""
    said = values.get(ENVIRONMENT, FIELDS[ENVIRONMENT].default)
    if not isinstance(said, str):
        raise UsageError(f'{ENVIRONMENT} = {said!r}: is text, such as "retry(tries=3)"')
    values[ENVIRONMENT] = complete_environment(said)
    origins.setdefault(ENVIRONMENT, DEFAULT)
    _fill_code(file_hashes(code_files(values[ENVIRONMENT])), f"{ENVIRONMENT}_code", values, origins)


def _fill_code(hashes: Mapping[str, str], key: str, values: dict[str, Any], origins: dict[str, str]) -> None:
    """The hash of the files as they are, or as the run began with them. Raises `UsageError` where these differ."""
    now = [f"{digest} {path}" for path, digest in hashes.items()]
    known = values.setdefault(key, now)
    origins.setdefault(key, "code")
    if known != now:
        changed = ", ".join(sorted({line.partition(" ")[2] for line in {*known} ^ {*now}}))
        raise UsageError(
            f"{changed}: changed since the run began with it; restore the file, or go on with the new one by --set {key}=auto"
        )


def _fill_samples(values: dict[str, Any], origins: dict[str, str]) -> None:
    """n of every benchmark asked; a number that was said is for all of them."""
    prefix = "eval.samples"
    if prefix in values:
        values[f"{prefix}.{OTHERS}"], origins[f"{prefix}.{OTHERS}"] = values.pop(prefix), origins.pop(prefix)
    if f"{prefix}.{OTHERS}" in values:
        return
    asked = {benchmark.name: benchmark.samples for benchmark in select_benchmarks(values["eval.benchmarks"])}
    for name, samples in {**asked, OTHERS: DEFAULT_SAMPLES}.items():
        key = f"{prefix}.{name}"
        if key not in values:
            values[key], origins[key] = samples, "benchmark"


def _device(values: Mapping[str, Any]) -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _on_a_cpu(key: str, values: Mapping[str, Any]) -> Any:
    return FIT_MEMORY[key]


SHARDING = "train.sharding"

FIT_MEMORY: dict[str, Any] = {
    "train.tokens_per_micro_batch": 16384,
    "train.activation_checkpointing": False,
    SHARDING: "none",
}
"""Settings that are chosen for the GPU's memory, with their values on a CPU."""

_CHOOSE: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "model.device": _device,
    "model.compute_dtype": lambda values: "bfloat16" if values["model.device"].startswith("cuda") else "float32",
    "problems.template": lambda values: default_template(values["problems.source"], values["model.source"]),
    **{key: partial(_on_a_cpu, key) for key in FIT_MEMORY},
    "reward.form": lambda values: "messages" if get_template(values["problems.template"]).chat else "text",
}
