"""A number for every token of stored responses: how likely it was, or how its probability has changed since."""

from collections.abc import Sequence
from pathlib import Path

from gmc.comparison.token_weights import token_weights
from gmc.errors import UsageError
from gmc.models import load_model, tokenizer_hash
from gmc.scoring.scorer import Scorer
from gmc.store.policies import newest_policy
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.groups import expanded, mask_of, sampled_length, token_ids
from gmc.store.shards.select import Seen

BY = ("logprob", "ratio", "weight")

Colored = list[tuple[str, float]]
"""A response as its tokens' texts, each with a number."""


def color_tokens(seen: Sequence[Seen], by: str, run: Path) -> list[Colored]:
    """One list a response. by: "logprob" is what the shard holds, "ratio" the log of the newest policy's probability over it,
    "weight" what the run's rule makes of the token under that policy (`token_weights`).

    Raises `UsageError` for a run without a published policy, rollouts without log-probs or of another tokenizer.
    """
    if by not in BY:
        raise UsageError(f"--color {by}: tokens are colored by {', '.join(BY)}")
    source = seen[0].metadata.model_id if by == "logprob" else newest_policy(RunDirectory.open(run).policies)
    if source is None:
        raise UsageError(f"{run}: no policy is published yet, so there is no {by}; gmc train publishes some")
    model = load_model(source)
    weights = iter(token_weights(seen, RunDirectory.open(run), model)) if by == "weight" and seen else None
    scorer = Scorer(model, temperature=float(seen[0].metadata.sampling.get("temperature", "1"))) if by == "ratio" else None
    colored = []
    for one in seen:
        row = one.row
        if one.metadata.tokenizer_hash != tokenizer_hash(model.tokenizer):
            raise UsageError(f"{one.path}: sampled with another tokenizer than that of {model.source}, so tokens have no color")
        values = row.trainer_logprobs or row.engine_logprobs
        if values is None:
            raise UsageError(f"{one.path}: holds no log-probs, so tokens have no color")
        if scorer is not None:
            logp_BT = scorer.score(*token_ids([[row]])).logp_BT
            now = expanded(row, logp_BT[0, : sampled_length(row)].tolist())
            values = [new - old if own else 0.0 for new, old, own in zip(now, values, mask_of(row), strict=True)]
        if weights is not None:
            values = next(weights)
        texts = [str(model.tokenizer.decode([token])) for token in row.response_token_ids]
        colored.append(list(zip(texts, values, strict=True)))
    return colored
