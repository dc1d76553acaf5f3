"""One typed model of every setting. An unknown key is an error, and each field's description is its documentation.

A default of None means "depends on the model": the embedded model is trained with the laboratory's values, any other model
with those of arXiv 2610.01896. `Settings.filled` replaces each None by the value used, so saved settings are complete.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from gmc.config.normalizer import Normalizer
from gmc.config.sampling import Sampling

EMBEDDED = "embedded"
LIVE = "live"
"""The delay of a run whose rollouts are made by `gmc rollout --follow`: whatever it comes to be."""

Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """Base of every group of settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True, allow_inf_nan=False)


class ModelSettings(Section):
    """[model]: which network and how it computes."""

    source: str = Field(EMBEDDED, description="'embedded', a Hugging Face folder, or a hub id")
    device: str = Field("auto", description="'auto' (CUDA if present), 'cpu', 'cuda', 'cuda:1'")
    compute_dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto",
        description="dtype of matrix products, 'auto': bfloat16 on CUDA, else float32; weights, "
        "log-softmax and optimizer stay in float32",
    )
    trust_remote_code: bool = Field(False, description="let a hub repository run its own modelling code")


class ProblemSettings(Section):
    """[problems]: what is asked, and how it is put to the model."""

    source: str = Field("arithmetic", description="'arithmetic' (built in), a JSONL/JSON/Parquet/CSV file, or a hub id")
    question_field: str | None = Field(None, description="field that holds the question, when its name is unusual")
    answer_field: str | None = Field(None, description="field that holds the gold answer, when its name is unusual")
    split: str | None = Field(None, description="split of a hub data set")
    template: str | None = Field(None, description="prompt template id; None: the source's own")


class RolloutSettings(Section):
    """[rollout]: how training rollouts are sampled."""

    engine: Literal["transformers", "vllm"] = Field("transformers", description="what samples the tokens")
    prompts: Count = Field(8, description="P, groups a launch batch and an update")
    group_size: int = Field(8, ge=1, description="G, responses to one prompt")
    temperature: float = Field(1.0, gt=0, description="sampling temperature, applied to both sides of every ratio")
    max_tokens: Count | None = Field(None, description="longest response; None: 64 embedded, else 4096")
    top_p: float = Field(1.0, description="refused for training unless 1")
    top_k: int = Field(0, description="refused for training unless 0")
    min_p: float = Field(0.0, description="refused for training unless 0")
    repetition_penalty: float = Field(1.0, description="refused for training unless 1")
    batches: Count = Field(16, description="launch batches that `gmc rollout` writes")
    logprobs: Literal["trainer", "engine"] = Field("trainer", description="which behavior log-probs training uses")
    entropies: bool = Field(False, description="also store behavior entropies (for rules that ask for them)")
    tensor_parallel: Count = Field(1, description="vLLM: GPUs that share one copy of the model")
    gpu_memory_share: float = Field(0.5, gt=0, le=1, description="vLLM: share of GPU memory it may take")

    @field_validator("group_size")
    @classmethod
    def _enough_for_leave_one_out(cls, group_size: int) -> int:
        if group_size < 2:
            raise ValueError("a group-relative advantage compares the responses of a group, so it needs at least 2 of them")
        return group_size

    def sampling(self, stop: tuple[str, ...]) -> Sampling:
        """The sampling values of training rollouts; raises `UsageError` for anything but temperature."""
        assert self.max_tokens is not None
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
    learning_rate: float | None = Field(None, gt=0, description="peak rate; None: 4e-4 embedded, else 1e-6")
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of the first moment")
    beta2: float = Field(0.999, ge=0, lt=1, description="decay of the second moment")
    epsilon: float = Field(1e-8, gt=0, description="added to the root of the second moment")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay")
    warmup_updates: int = Field(0, ge=0, description="updates of linear warm-up")
    schedule: Literal["constant", "cosine", "linear"] = Field("cosine", description="shape after the warm-up")
    final_fraction: float = Field(0.0, ge=0, le=1, description="rate at the end, as a share of the peak")
    clip_norm: float = Field(1.0, gt=0, description="gradient norm is clipped to this")


class TrainSettings(Section):
    """[train]: the loop."""

    updates: Count = Field(400, description="N, planned optimizer updates (the learning-rate horizon)")
    normalizer: Normalizer | None = Field(None, strict=False, description="loss normalizer; None: the estimator's own")
    checkpoint_every: Count = Field(50, description="updates between checkpoints")
    keep_checkpoints: Count = Field(2, description="newest checkpoints kept")
    publish_every: Count = Field(50, description="updates between published policies (the last is always published)")
    tokens_per_micro_batch: Count = Field(16384, description="token budget of one forward and backward pass")
    share_prompts: bool = Field(True, description="compute a group's prompt once")
    activation_checkpointing: bool = Field(False, description="recompute activations in the backward pass")
    compile: bool = Field(False, description="feed-forward blocks and norms through torch.compile (slow first updates)")
    trackers: list[Literal["wandb", "tensorboard"]] = Field(default_factory=list, description="optional trackers")


class EvalSettings(Section):
    """[eval]: evaluation has its own sampling and never inherits that of training."""

    benchmarks: list[str] = Field(default_factory=lambda: ["arithmetic"], description="benchmark names or suites")
    samples: int | None = Field(None, ge=0, description="n of avg@n; None: the benchmark's own")
    greedy: bool = Field(True, description="also decode greedily")
    temperature: float = Field(1.0, ge=0, description="sampling temperature of the n samples")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus sampling of the n samples")
    max_tokens: Count | None = Field(None, description="longest response; None: 64 embedded, else 4096")
    pass_k: list[Count] = Field(default_factory=list, description="also report unbiased pass@k")
    limit: Count | None = Field(None, description="only the first problems of each benchmark")
    seed: int = Field(0, ge=0, description="seed of evaluation sampling and of the bootstrap")


class LiveSettings(Section):
    """[live]: real asynchrony between a trainer and any number of `gmc rollout --follow`."""

    publish_every: Count = Field(1, description="updates between policies that followers load")
    max_ahead: Count = Field(4, description="batches that may wait before followers pause")
    lease_seconds: float = Field(60.0, gt=0, description="a claim without heartbeat for this long goes to another follower")
    patience_seconds: float = Field(600.0, gt=0, description="the trainer stops with an error after waiting this long")


class Settings(Section):
    """Every setting of a run."""

    seed: int = Field(0, ge=0, description="seed of problem order and sampling")
    delay: str = Field("64", description="D, 'live', 'shards', 'length:C', 'uniform:a:b', 'geometric:mean', 'schedule:FILE', …")
    model: ModelSettings = ModelSettings()
    problems: ProblemSettings = ProblemSettings()
    rollout: RolloutSettings = RolloutSettings()
    estimator: dict[str, Any] = Field(default_factory=lambda: {"name": "gmc"}, description="name and the rule's settings")
    optimizer: OptimizerSettings = OptimizerSettings()
    train: TrainSettings = TrainSettings()
    eval: EvalSettings = EvalSettings()
    live: LiveSettings = LiveSettings()

    @field_validator("delay", mode="before")
    @classmethod
    def _number_is_fixed_delay(cls, delay: Any) -> Any:
        return str(delay) if isinstance(delay, int) and not isinstance(delay, bool) else delay

    @property
    def is_live(self) -> bool:
        """Whether followers make the rollouts."""
        return self.delay == LIVE

    def filled(self) -> "Settings":
        """The same settings with every model-dependent default filled in."""
        embedded = self.model.source == EMBEDDED
        rate = self.optimizer.learning_rate or (4e-4 if embedded else 1e-6)
        longest = 64 if embedded else 4096
        return self.model_copy(
            update={
                "optimizer": self.optimizer.model_copy(update={"learning_rate": rate}),
                "rollout": self.rollout.model_copy(update={"max_tokens": self.rollout.max_tokens or longest}),
                "eval": self.eval.model_copy(update={"max_tokens": self.eval.max_tokens or longest}),
            }
        )


def settings_tree(settings: Settings) -> dict[str, Any]:
    """Settings as plain values without None (TOML has no null)."""
    tree: dict[str, Any] = _without_none(settings.model_dump(mode="json"))
    return tree


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value
