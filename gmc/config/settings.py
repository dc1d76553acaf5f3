"""One typed model of every setting that a run uses. An unknown key is an error, and each field's description documents it.

A field marked `Derived` has no default of its own: `gmc.resolving.resolve` chooses the value from the model, the problems, the
rule or the device, unless a layer says it. So a `RunSettings` holds every value in force, and no "auto" and no None.
"""

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from gmc.config.fields import EMBEDDED, Derived, by_model
from gmc.config.normalizer import Normalizer
from gmc.config.sampling import Sampling

OTHERS = "others"
"""In a table by benchmark: any benchmark that the table does not name."""

LARGEST = 10_000_000
"""Of anything counted: updates, groups, tokens. What is beyond it is a slip of the hand, and would hang or fill the memory."""
LARGEST_SEED = 2**63 - 1
LEAST_TEMPERATURE = 0.001
"""Logits divided by less overflow, and what they give is greedy decoding anyway."""
DAY, YEAR = 86_400.0, 31_536_000.0

Count = Annotated[int, Field(ge=1, le=LARGEST)]
CountOrNone = Annotated[int, Field(ge=0, le=LARGEST)]
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
Seconds = Annotated[float, Field(gt=0, le=YEAR)]
Samples = Annotated[int, Field(ge=0, le=100_000)]
Device = Annotated[str, Field(pattern=r"^(cpu|\d+)$")]
LONGEST = by_model(64, 4096)
BY_MEMORY = Derived("model.device", "device", "16384, on cuda what fits")
BY_MEMORY_TOO = Derived("model.device", "device", "false, on cuda what fits")
BY_RANKS = Derived("model.device", "device", "none, with torchrun on cuda full if copies do not fit")


class Section(BaseModel):
    """Base of every group of settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True, allow_inf_nan=False)


class LoraSettings(Section):
    """[model.lora]: an adapter that is trained in place of the weights."""

    rank: int = Field(
        0, ge=0, le=65_536, description="rank of a LoRA adapter under every linear layer; 0: all weights are trained"
    )
    alpha: float = Field(32.0, gt=0, description="the adapter's product is scaled by alpha / rank")


class ModelSettings(Section):
    """[model]: which network and how it computes."""

    source: str = Field(EMBEDDED, description="'embedded', a Hugging Face folder, or a hub id")
    device: Annotated[str, Derived("", "device", "cuda if present, else cpu")] = Field(
        description="'cpu', 'cuda', 'cuda:1'; 'auto' chooses anew where a command runs"
    )
    compute_dtype: Annotated[
        Literal["float32", "bfloat16"], Derived("model.device", "device", "bfloat16 on cuda, else float32")
    ] = Field(description="dtype of matrix products; weights, log-softmax and optimizer stay in float32")
    trust_remote_code: bool = Field(False, description="let a hub repository run its own modelling code")
    lora: LoraSettings


class ProblemSettings(Section):
    """[problems]: what is asked, and how it is put to the model."""

    source: str = Field("arithmetic", description="'arithmetic' (built in), a JSONL/JSON/Parquet/CSV file, or a hub id")
    question_field: str = Field("", description="field that holds the question; empty: found by its name")
    answer_field: str = Field("", description="field that holds the gold answer; empty: found by its name")
    split: str = Field("", description="split of a hub data set; empty: the only one, or train")
    template: Annotated[
        str, Derived("problems.source", "problems", "the source's own, arithmetic-v1 for the embedded model")
    ] = Field(description="prompt template id")


class RewardSection(Section):
    """[reward]: what a response is worth, and how reward functions are called."""

    parts: list[str] = Field(
        default_factory=lambda: ["math"],
        description="what is rewarded: NAME, NAME(setting=value), FILE.py:FUNCTION or MODULE:FUNCTION, each with =WEIGHT if it "
        "is not 1; the weighted sum trains; gmc rewards lists the names",
    )
    code: Annotated[list[str], Derived("reward.parts", "code", "that of the files as they are")] = Field(
        description="hash and path of every file of functions, so that no run goes on with another function"
    )
    form: Annotated[
        Literal["text", "messages"], Derived("problems.template", "template", "messages with a chat template, else text")
    ] = Field(description="what functions get as prompts and completions")
    seconds: Seconds = Field(60.0, description="how long one call of a function may take")
    on_error: Literal["stop", "zero"] = Field(
        "stop", description="a function that fails stops the run, or gives every response of that call 0, which is counted"
    )

    @field_validator("parts", mode="before")
    @classmethod
    def _one_may_be_text(cls, parts: Any) -> Any:
        return [parts] if isinstance(parts, str) else parts


class RolloutSettings(Section):
    """[rollout]: how training rollouts are sampled."""

    engine: str = Field("transformers", description="what samples the tokens: 'transformers', 'vllm' or an installed engine")
    prompts: Count = Field(8, description="P, groups a launch batch and an update")
    group_size: int = Field(8, ge=2, le=LARGEST, description="G, responses to one prompt")
    temperature: float = Field(
        1.0, ge=LEAST_TEMPERATURE, le=1000, description="sampling temperature, applied to both sides of every ratio"
    )
    max_tokens: Annotated[Count, LONGEST] = Field(description="longest response, in tokens")
    top_p: float = Field(1.0, description="refused for training unless 1")
    top_k: int = Field(0, description="refused for training unless 0")
    min_p: float = Field(0.0, description="refused for training unless 0")
    repetition_penalty: float = Field(1.0, description="refused for training unless 1")
    resample_equal: CountOrNone = Field(
        0, description="K, further prompts a batch that may be asked in place of groups with equal rewards; 0: none"
    )
    environment: str = Field(
        "single",
        description="what answers the model between its turns: NAME or NAME(setting=value); gmc environments lists all",
    )
    environment_code: Annotated[list[str], Derived("rollout.environment", "code", "that of the files as they are")] = Field(
        description="hash and path of every file of functions that the environment names, so that no run goes on with others"
    )
    environment_seconds: Seconds = Field(60.0, description="how long one call of the environment may take")
    batches: Count = Field(16, description="launch batches that `gmc rollout` writes")
    logprobs: Literal["trainer", "engine"] = Field("trainer", description="which behavior log-probs training uses")
    entropies: Annotated[bool, Derived("estimator.name", "rule", "true if the rule needs them")] = Field(
        description="also store behavior entropies; always on for a rule that needs them"
    )
    devices: list[Device] = Field(
        default_factory=list,
        description="GPUs that sample in processes of their own while training goes on, as torch counts them ('4'), or 'cpu'; "
        "none: sampling happens where training does",
    )
    servers: list[str] = Field(
        default_factory=list, description="vllm-server: addresses of the servers, such as http://node7:8000"
    )
    weight_transfer: Literal["folder", "nccl"] = Field(
        "folder",
        description="how vLLM servers (vllm-server) and followers of a live run (vllm) take new weights: from a file that each "
        "reads, or by vLLM's transfer over NCCL",
    )
    tensor_parallel: Count = Field(1, description="vLLM: GPUs that share one copy of the model")
    gpu_memory_share: float = Field(0.5, gt=0, le=1, description="vLLM: share of GPU memory it may take")

    @field_validator("group_size", mode="before")
    @classmethod
    def _enough_for_leave_one_out(cls, group_size: Any) -> Any:
        if isinstance(group_size, int) and group_size < 2:
            raise ValueError("a group-relative advantage compares the responses of a group, so it needs at least 2 of them")
        return group_size

    def sampling(self, stop: tuple[str, ...]) -> Sampling:
        """The sampling values of training rollouts; raises `UsageError` for anything but temperature."""
        sampling = Sampling(
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            stop=stop,
        )
        sampling.require_training_safe()
        return sampling


class OptimizerSettings(Section):
    """[optimizer]: AdamW and its learning-rate schedule, a pure function of the update index and the planned updates."""

    name: Literal["adamw", "adamw8bit"] = Field("adamw", description="fused torch AdamW, or bitsandbytes 8-bit AdamW")
    learning_rate: Annotated[float, by_model(4e-4, 1e-6)] = Field(gt=0, description="peak rate")
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of the first moment")
    beta2: float = Field(0.999, ge=0, lt=1, description="decay of the second moment")
    epsilon: float = Field(1e-8, gt=0, description="added to the root of the second moment")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay")
    warmup_updates: CountOrNone = Field(0, description="updates of linear warm-up")
    schedule: Literal["constant", "cosine", "linear"] = Field("cosine", description="shape after the warm-up")
    final_fraction: float = Field(0.0, ge=0, le=1, description="rate at the end, as a share of the peak")
    clip_norm: float = Field(1.0, gt=0, description="gradient norm is clipped to this")


class TrainSettings(Section):
    """[train]: the loop."""

    start_version: int = Field(
        -1,
        ge=-1,
        description="with --delay shards: the policy version, in imported shards, that this run's initial weights are; -1: not "
        "known, so their delays are unknown",
    )
    updates: Count = Field(400, description="N, planned optimizer updates (the learning-rate horizon)")
    normalizer: Annotated[Normalizer, Derived("estimator.name", "rule", "the rule's own")] = Field(
        strict=False, description="loss normalizer"
    )
    checkpoint_every: Count = Field(50, description="updates between checkpoints")
    keep_checkpoints: Count = Field(2, description="newest checkpoints kept")
    publish_every: Count = Field(50, description="updates between published policies (the last is always published)")
    policy_dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="of published policies and of weights handed to sampling processes; training keeps float32"
    )
    tokens_per_micro_batch: Annotated[Count, BY_MEMORY] = Field(description="token budget of one forward and backward pass")
    share_prompts: bool = Field(True, description="compute a group's prompt once")
    activation_checkpointing: Annotated[bool, BY_MEMORY_TOO] = Field(description="recompute activations in the backward pass")
    sharding: Annotated[Literal["none", "full"], BY_RANKS] = Field(
        description="with torchrun: every rank holds 'none': a copy of weights, gradients and optimizer, 'full': a part of each"
    )
    compile: bool = Field(False, description="feed-forward blocks and norms through torch.compile (slow first updates)")
    trackers: list[Literal["wandb", "tensorboard"]] = Field(default_factory=list, description="optional trackers")
    eval_every: CountOrNone = Field(
        0,
        description="updates between scores on held-out problems, asked as gmc eval asks; the best policy stays; 0: none",
    )
    eval_problems: str = Field(
        "",
        description="what is scored every eval_every: a benchmark, a problem file or a hub id; empty: the arithmetic that "
        "training never asks, where training asks arithmetic",
    )
    eval_limit: Count = Field(64, description="held-out problems scored every eval_every, the first ones")
    stop_on: list[Literal["non-finite", "drift", "no-gradient", "no-signal"]] = Field(
        default_factory=list, description="signs of divergence that end the run; each is warned of in any case"
    )


class EvalSettings(Section):
    """[eval]: evaluation has its own sampling and never inherits that of training."""

    benchmarks: list[str] = Field(default_factory=lambda: ["arithmetic"], description="benchmark names or suites")
    samples: Annotated[dict[str, Samples], Derived("eval.benchmarks", "benchmark", "each benchmark's own")] = Field(
        description="n of avg@n by benchmark, `others` for any other; 0: greedy only; one number for all of them"
    )
    greedy: bool = Field(True, description="also decode greedily")
    temperature: float = Field(1.0, ge=0, le=1000, description="sampling temperature of the n samples")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus sampling of the n samples")
    max_tokens: Annotated[Count, LONGEST] = Field(description="longest response, in tokens")
    pass_k: list[Count] = Field(default_factory=list, description="also report unbiased pass@k")
    limit: CountOrNone = Field(0, description="only so many first problems of each benchmark; 0: all")
    seed: Seed = Field(0, description="seed of evaluation sampling and of the bootstrap")

    @field_validator("samples", mode="before")
    @classmethod
    def _number_is_for_all(cls, samples: Any) -> Any:
        return {OTHERS: samples} if isinstance(samples, int) else samples

    @field_validator("temperature")
    @classmethod
    def _greedy_or_not(cls, temperature: float) -> float:
        if 0 < temperature < LEAST_TEMPERATURE:
            raise ValueError(f"give 0, which is greedy, or at least {LEAST_TEMPERATURE:g}")
        return temperature

    def samples_of(self, benchmark: str) -> int:
        """n of avg@n for a benchmark."""
        return self.samples.get(benchmark, self.samples[OTHERS])


class LiveSettings(Section):
    """[live]: real asynchrony between a trainer and any number of `gmc rollout --follow`."""

    publish_every: Count = Field(1, description="updates between policies that followers load")
    max_ahead: Count = Field(4, description="batches that may wait before followers pause")
    lease_seconds: float = Field(
        60.0, gt=0, le=DAY, description="a claim without heartbeat for this long goes to another follower"
    )
    in_flight: bool = Field(
        False, description="followers go on with unfinished responses under newer policies (transformers engine)"
    )
    in_flight_cache: Literal["recomputed", "kept"] = Field(
        "recomputed", description="what a follower does with keys and values that older weights computed"
    )
    patience_seconds: Seconds = Field(600.0, description="the trainer stops with an error after waiting this long")


class RunSettings(Section):
    """Every setting of a run, with the value in force. What is saved, compared, printed, and given to every builder."""

    seed: Seed = Field(0, description="seed of problem order and sampling")
    delay: str = Field(
        "64",
        description="updates between generation and use: D, ramp:D, block:S, reuse:S, length:C, length:mean=M, "
        "inflight:C, uniform:LOW:HIGH, geometric:MEAN, schedule:FILE, shards or live; gmc delays lists all",
    )
    model: ModelSettings
    problems: ProblemSettings
    reward: RewardSection
    rollout: RolloutSettings
    estimator: dict[str, Any] = Field(
        default_factory=lambda: {"name": "gmc"},
        description="the correction rule by name, and its settings; gmc estimators lists all",
    )
    optimizer: OptimizerSettings
    train: TrainSettings
    eval: EvalSettings
    live: LiveSettings
    _origins: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @field_validator("delay", mode="before")
    @classmethod
    def _number_is_fixed_delay(cls, delay: Any) -> Any:
        return str(delay) if isinstance(delay, int) and not isinstance(delay, bool) else delay

    @field_validator("estimator", mode="before")
    @classmethod
    def _text_is_its_name(cls, estimator: Any) -> Any:
        return {"name": estimator} if isinstance(estimator, str) else estimator

    @property
    def origins(self) -> Mapping[str, str]:
        """Who said each value, by dotted key: "default", "recipe FILE", "flag --x", "model", and so on."""
        return self._origins

    def with_origins(self, origins: Mapping[str, str]) -> "RunSettings":
        """The same settings, knowing where each came from."""
        known = self.model_copy()
        known._origins = MappingProxyType(dict(origins))
        return known

    @property
    def hash(self) -> str:
        """16 hex digits that tell the values apart, wherever they came from."""
        text = json.dumps(settings_tree(self), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def settings_tree(settings: RunSettings) -> dict[str, Any]:
    """Settings as plain values, without a rule's settings that are None (TOML has no null)."""
    tree: dict[str, Any] = _without_none(settings.model_dump(mode="json"))
    return tree


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value
