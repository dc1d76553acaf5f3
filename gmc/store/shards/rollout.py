"""One response as a row, and what a file of them says about itself."""

from dataclasses import dataclass, field

SCHEMA_VERSION = 2

LARGEST_REWARD = 1e16
"""Of either sign. Sums and squares of rewards up to here are finite in 32 bits; beyond it a rule's advantages are not."""


@dataclass(slots=True)
class Rollout:
    """One sampled response with everything a later command needs of it. Ids are the record; text is for people.

    batch, group, sample: launch batch, group within it (0..P-1), sample within the group (0..G-1).
    policy_version: version of the weights that sampled its first token, one for the group.
    response_token_ids: every sampled token, the end token and those completing a stop string included; may be empty.
    response_mask: whether the model sampled each of them, False for what an environment wrote; None when it sampled all.
    token_versions: version of the weights that sampled each of them; None when it is policy_version for all.
    engine_logprobs, trainer_logprobs: log-probability of each response token under the policy that sampled it, as the
        engine reported it and as the trainer's own forward pass gives it; trainer_entropies: entropy (nats) of the
        full next-token distribution at each response token. Each has one value a response token or is None in a whole file.
    reward: what it is worth (float32); reward_parts: what each part of a reward made of several gives, NaN where one does not
        apply, by the names in the file's record. status: how the reward came about, in words. answer: the gold. prediction: the
        answer found, or None. note: what the reward wants to be remembered of this response, or None. turns: what model and
        environment said in turn, the model first; None when there was but one turn.
    launched_at, ready_at: virtual clock (updates), in live mode wall clock (Unix seconds), None when neither.
    """

    run_id: str
    problem_id: str
    batch: int
    group: int
    sample: int
    policy_version: int
    prompt_token_ids: list[int]
    response_token_ids: list[int]
    finish_reason: str
    reward: float
    status: str
    answer: str
    prediction: str | None
    prompt: str
    response: str
    engine_logprobs: list[float] | None = None
    trainer_logprobs: list[float] | None = None
    trainer_entropies: list[float] | None = None
    launched_at: float | None = None
    ready_at: float | None = None
    response_mask: list[bool] | None = None
    token_versions: list[int] | None = None
    reward_parts: list[float] | None = None
    note: str | None = None
    turns: list[str] | None = None


@dataclass(frozen=True)
class SetAside:
    """A group that was sampled and not kept, because its responses all had this reward. tokens: sampled for all of them."""

    problem_id: str
    reward: float
    tokens: int


FROM_FILE = "imported_from_file"
"""Entry of `extra`: the table that a shard was imported from."""
UNKNOWN_VERSIONS = "unknown_versions"
"""Entry of `extra`, where the table did not say which version sampled; the rows then say 0."""


@dataclass(frozen=True)
class ShardMetadata:
    """The file-level record of a shard: enough to refuse a foreign or incompatible file by name.

    weights_hash: SHA-256 of the generating policy's float32 weights; tokenizer_hash: SHA-256 of its vocabulary;
    sampling: every sampling value as text; logprob_kinds: which of "engine", "trainer" the file holds. rewards: what was
    rewarded, as the setting reward.parts says it; empty where that is not known. reward_parts: the parts' names.
    environment: what answered the model, as the setting rollout.environment says it; None where that is not known.
    resample_equal: how many further prompts might be asked in place of groups with equal rewards, None where that is not known;
    set_aside: the groups that were so replaced, or came in vain. reward_log: what reward functions logged of this batch, where
    a follower or a sampling process made it.
    """

    run_id: str
    model_id: str
    weights_hash: str
    tokenizer_hash: str
    vocabulary_size: int
    engine: str
    engine_version: str
    sampling: dict[str, str]
    template_id: str
    logprob_kinds: tuple[str, ...]
    seed: int
    group_size: int
    gmc_version: str
    rewards: tuple[str, ...] = ()
    reward_parts: tuple[str, ...] = ()
    environment: str | None = None
    resample_equal: int | None = None
    set_aside: tuple[SetAside, ...] = ()
    reward_log: dict[str, float] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION
    extra: dict[str, str] = field(default_factory=dict)
