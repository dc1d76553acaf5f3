"""What training takes of one GPU's memory, by arithmetic and a count on fake tensors: from a model's config alone.

The sums are estimates that were checked against counts of saved tensors, not against a GPU's allocator; `RESERVE` stands for
what they leave out.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import torch
from transformers import AutoConfig, PretrainedConfig, PreTrainedModel

from gmc.config.fields import EMBEDDED
from gmc.config.settings import RunSettings
from gmc.delays.registry import delay_class
from gmc.engines.registry import load_engine
from gmc.errors import DataError, UsageError
from gmc.estimators.base import Estimator
from gmc.hub import use_cache_when_unreachable
from gmc.models import embedded_model_path
from gmc.resolving.build import COMPUTE_DTYPES, build_rule
from gmc.resolving.checks import unshardable
from gmc.resolving.resolve import FIT_MEMORY, SHARDING
from gmc.scoring.head import CHUNK_BYTES
from gmc.scoring.memory import NetworkSize, SavedBytes, fake_network, network_size, saved_bytes

GIB = 2**30
RESERVE = 2 * GIB
"""CUDA's context, kernels' workspace and the allocator's fragments."""

BUDGETS = (16384, 8192, 4096, 2048)
"""Token budgets that are tried, the largest first."""

RANKS = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of GPUs over which a plan tries to shard, where nothing says how many there are."""

GPUS = {"24 GB": 22.5, "48 GB": 45.0, "80 GB": 79.0, "141 GB": 139.8}
"""GiB that usual GPUs offer, by the name of their size; for a plan without one."""


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of one GPU by purpose, with the values that decide them.

    sampling: the key-value cache of an engine in this network, which is freed before activations are made.
    micro_batch_tokens: input tokens of the largest micro-batch, which one long response may set. capacity: bytes of the GPU.
    ranks: GPUs that hold a part of the parameters each, 1 where each holds a copy.
    """

    parts: dict[str, int]
    sampling: int
    token_budget: int
    micro_batch_tokens: int
    checkpointing: bool
    capacity: int
    ranks: int = 1

    @property
    def total(self) -> int:
        """Bytes at the fullest moment: of sampling, or of the backward pass."""
        passing = self.parts["activations"] + self.parts["logits"]
        return sum(self.parts.values()) - passing + max(passing, self.sampling)

    @property
    def fits(self) -> bool:
        """Whether it fits the GPU."""
        return self.total <= self.capacity

    def record(self) -> dict[str, Any]:
        """As one object of `gmc train --plan --json`."""
        return {**vars(self), "total": self.total, "fits": self.fits}


def gpu_bytes() -> int | None:
    """Memory of this process's GPU, None without one."""
    return torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else None


def fitted_plan(settings: RunSettings, capacity: int, ranks: int | None = None) -> MemoryPlan:
    """The first plan that fits: with copies where that is possible, without recomputing activations, with the largest budget.

    ranks: how many processes train together, None for as few as can hold the parts where copies do not fit. What was said of
    the token budget, of checkpointing or of sharding stays. The leanest plan when none fits. Errors as for `load_config`.
    """
    train, rule = settings.train, build_rule(settings)
    free = {key for key in FIT_MEMORY if settings.origins[key] == "device"}
    budgets = BUDGETS if "train.tokens_per_micro_batch" in free else (train.tokens_per_micro_batch,)
    choices = (False, True) if "train.activation_checkpointing" in free else (train.activation_checkpointing,)
    tried = []
    for over, checkpointing, budget in product(_over(settings, ranks, free=SHARDING in free), choices, budgets):
        plan = _plan(settings, rule, budget, checkpointing, capacity, over)
        if plan.fits:
            return plan
        tried.append(plan)
    return min(tried, key=lambda plan: plan.total)


def _over(settings: RunSettings, ranks: int | None, *, free: bool) -> Sequence[int]:
    """Over how many ranks the parameters may lie, in the order to try."""
    several = RANKS[1:] if ranks is None else (ranks,)
    if not free:
        return several if settings.train.sharding == "full" else (1,)
    return (1,) if ranks == 1 or any(unshardable(settings).values()) else (1, *several)


def check_engine_share(settings: RunSettings, capacity: int | None) -> None:
    """Raise `UsageError`, with the arithmetic, when an engine's own copy on this GPU leaves training too little."""
    elsewhere = delay_class(settings.delay).live or bool(settings.rollout.devices)
    if capacity is None or elsewhere or not load_engine(settings.rollout.engine).takes_memory_share:
        return
    train = settings.train
    plan = _plan(settings, build_rule(settings), train.tokens_per_micro_batch, train.activation_checkpointing, capacity, 1)
    if not plan.fits:
        share = settings.rollout.gpu_memory_share
        needed = plan.total - plan.parts["engine"]
        room = (capacity - needed) / capacity
        cure = f"at most rollout.gpu_memory_share = {room:.2f}" if room > 0.05 else "a larger GPU or --live with followers"
        raise UsageError(
            f"rollout.gpu_memory_share = {share:g}: {settings.rollout.engine} would take {share * capacity / GIB:.1f} GiB of "
            f"{capacity / GIB:.1f} and training needs {needed / GIB:.1f} ({_listed(plan.parts)}); that leaves room for {cure}"
        )


def _listed(parts: dict[str, int]) -> str:
    return ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts.items() if name != "engine")


def _plan(settings: RunSettings, rule: Estimator, budget: int, checkpointing: bool, capacity: int, ranks: int) -> MemoryPlan:
    model, dtype = settings.model, settings.model.compute_dtype
    size, saved, layer = _counted(model.source, model.trust_remote_code, dtype, checkpointing)
    tokens = max(budget, settings.rollout.max_tokens)
    words, engine = size.parameters, load_engine(settings.rollout.engine)
    moments = 8 * words if settings.optimizer.name == "adamw" else 2 * words + 8 * words // 256
    kept = 4 * words * ((rule.anchor_lag + 2 if rule.anchor_lag else 0) + (type(rule).gradient is not Estimator.gradient))
    activations = saved.of(tokens) + layer.of(tokens)
    if ranks > 1:  # weights are cast when they are gathered, so none of their casts is kept
        activations -= saved.fixed + layer.fixed
    here = not settings.rollout.devices
    parts = {
        "weights": 4 * words // ranks,
        "gradients": 4 * words // ranks,
        "optimizer": moments // ranks,
        "rule": kept // ranks,
        "gathered": _gathered(size, dtype) if ranks > 1 else 0,
        "activations": activations,
        "logits": 3 * CHUNK_BYTES["cuda"],
        "engine": int(settings.rollout.gpu_memory_share * capacity) if engine.takes_memory_share and here else 0,
        "reserve": RESERVE,
    }
    used = {name: part for name, part in parts.items() if part}
    sampling = _cache_bytes(settings, capacity) if engine.shares_weights and here else 0
    if sampling and ranks > 1:
        sampling += _whole_copy(size, dtype)
    return MemoryPlan(used, sampling, budget, tokens, checkpointing, capacity, ranks)


def _gathered(size: NetworkSize, dtype: str) -> int:
    """What a sharded backward pass holds whole: float32 weights and gradients of what is no layer; of a layer, its gradient as
    it comes and as it is summed in float32, and its weights with those of the next."""
    layer = (size.parameters - size.outside) // size.layers
    narrow = 2 if dtype == "bfloat16" else 4
    return 8 * size.outside + (2 * narrow + narrow + 4) * layer


def _whole_copy(size: NetworkSize, dtype: str) -> int:
    """All weights at once, for sampling with the network itself: layers in the dtype of products, the rest in float32."""
    return 4 * size.outside + (2 if dtype == "bfloat16" else 4) * (size.parameters - size.outside)


def _counted(
    source: str, trust_remote_code: bool, compute_dtype: str, checkpointing: bool
) -> tuple[NetworkSize, SavedBytes, SavedBytes]:
    """The network's size, what a micro-batch keeps, and what one layer adds while backward works on it."""
    size = _size(source, trust_remote_code)
    whole = _saved(source, trust_remote_code, compute_dtype, False)
    saved = _saved(source, trust_remote_code, compute_dtype, checkpointing)
    return size, saved, SavedBytes(whole.fixed // size.layers, whole.per_token // size.layers)


@cache
def _network(source: str, trust_remote_code: bool) -> PreTrainedModel:
    return fake_network(load_config(source, trust_remote_code=trust_remote_code))


@cache
def _size(source: str, trust_remote_code: bool) -> NetworkSize:
    return network_size(_network(source, trust_remote_code))


@cache
def _saved(source: str, trust_remote_code: bool, compute_dtype: str, checkpointing: bool) -> SavedBytes:
    return saved_bytes(_network(source, trust_remote_code), COMPUTE_DTYPES[compute_dtype], checkpointing=checkpointing)


def _cache_bytes(settings: RunSettings, capacity: int) -> int:
    """Keys and values of the rows of one batch, at most the quarter of the GPU that the engine allows itself."""
    rollout = settings.rollout
    config = load_config(settings.model.source, trust_remote_code=settings.model.trust_remote_code).get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    token = 2 * config.num_hidden_layers * heads * head * (2 if settings.model.compute_dtype == "bfloat16" else 4)
    wanted = int(token * rollout.prompts * rollout.group_size * rollout.max_tokens)
    return min(wanted, capacity // 4)


@cache
def load_config(source: str, *, trust_remote_code: bool = False) -> PretrainedConfig:
    """A model's config; weights are not needed. Raises `DataError` or `UsageError` when there is none."""
    folder = str(embedded_model_path()) if source == EMBEDDED else source
    if folder.startswith(("/", ".", "~")) and not os.path.isfile(os.path.join(folder, "config.json")):
        raise DataError(f"model.source = {source}: no config.json there; name a Hugging Face model folder or a hub model")
    if not os.path.isdir(folder):
        use_cache_when_unreachable()
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        cause = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UsageError(f"model.source = {source}: its config cannot be read: {cause}") from error
    return config
