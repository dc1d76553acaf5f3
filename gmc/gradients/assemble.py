"""From rows on disk and current log-probs to the batch that a rule sees."""

from collections.abc import Mapping

import torch
from torch import Tensor

from gmc.delays.base import delay_of
from gmc.errors import DataError, UsageError
from gmc.estimators.batch import Batch, Need
from gmc.store.shards.groups import Groups, sampled, sampled_length
from gmc.store.shards.rollout import Rollout


def behavior_logp(groups: Groups, kind: str, width: int) -> Tensor:
    """Stored behavior log-probs of one kind as a padded float32 tensor (B, width) of the sampled tokens alone.

    Raises `DataError` when it is absent.
    """
    column = f"{kind}_logprobs"
    return _padded(groups, column, width, f"train with --logprobs {'engine' if kind == 'trainer' else 'trainer'}")


def engine_logp(groups: Groups, kind: str, width: int) -> Tensor:
    """Stored log-probs of the engine, for a rule that weighs them against the trainer's, as a padded float32 tensor (B, width).

    kind: of the behavior log-probs. Raises what `require_both_kinds` does, and `DataError` when a shard lacks the engine's.
    """
    require_both_kinds(kind)
    return _padded(groups, "engine_logprobs", width, "sample again with gmc, or choose a rule that needs the trainer's alone")


def require_both_kinds(kind: str) -> None:
    """Raise `UsageError` where the behavior log-probs are the engine's: nothing is left to weigh them against."""
    if kind == "engine":
        raise UsageError(
            "the rule weighs the engine's log-probs against the trainer's, which --logprobs engine leaves out; "
            "use --logprobs trainer"
        )


def behavior_entropy(groups: Groups, width: int) -> Tensor:
    """Stored behavior entropies (nats) as a padded float32 tensor (B, width). Raises `DataError` when they are absent."""
    return _padded(groups, "trainer_entropies", width, "sample again with --set rollout.entropies=true")


def _padded(groups: Groups, column: str, width: int, cure: str) -> Tensor:
    padded_BT = torch.zeros(sum(len(group) for group in groups), width)
    for index, row in enumerate(row for group in groups for row in group):
        values = getattr(row, column)
        if values is None:
            raise DataError(f"batch {row.batch}: its shard has no {column}; {cure}")
        own = sampled(row, values)
        padded_BT[index, : len(own)] = torch.tensor(own, dtype=torch.float32)
    return padded_BT


def lags(groups: Groups, update: int) -> list[int]:
    """Delay of each sequence at `update`, in updates: that of its first token, which is its oldest."""
    return [delay_of(update, row.policy_version) for group in groups for row in group]


def token_lags(row: Rollout, update: int) -> list[int]:
    """Delay of each sampled token of a response at `update`, in updates."""
    if row.token_versions is None:
        return [delay_of(update, row.policy_version)] * sampled_length(row)
    return [delay_of(update, version) for version in sampled(row, row.token_versions)]


def _lag_tensor(groups: Groups, update: int, width: int) -> Tensor:
    lag_BT = torch.tensor(lags(groups, update), dtype=torch.float32)[:, None].repeat(1, width)
    for index, row in enumerate(row for group in groups for row in group):
        if row.token_versions is not None:
            own = token_lags(row, update)
            lag_BT[index, : len(own)] = torch.tensor(own, dtype=torch.float32)
    return lag_BT


def assemble(
    groups: Groups,
    logp_BT: Tensor,
    mask_BT: Tensor,
    *,
    update: int,
    needs: frozenset[Need],
    logprob_kind: str,
    max_response_tokens: int,
    planned_updates: int,
    computed: Mapping[Need, Tensor],
) -> Batch:
    """The update batch with exactly what `needs` names. `computed` holds what only the model could give.

    Raises `DataError` when a shard lacks a column that is needed, `UsageError` when groups differ in size, or when a rule needs
    both kinds of log-probs and the run has one.
    """
    sizes = {len(group) for group in groups}
    if len(sizes) != 1:
        raise UsageError(f"update {update}: its groups have {sorted(sizes)} responses; all groups of a run need one size")
    width, device = logp_BT.shape[1], logp_BT.device
    brought = dict(computed)
    if Need.BEHAVIOR_LOGP in needs:
        brought[Need.BEHAVIOR_LOGP] = behavior_logp(groups, logprob_kind, width).to(device)
    if Need.ENGINE_LOGP in needs:
        brought[Need.ENGINE_LOGP] = engine_logp(groups, logprob_kind, width).to(device)
    if Need.BEHAVIOR_ENTROPY in needs:
        brought[Need.BEHAVIOR_ENTROPY] = behavior_entropy(groups, width).to(device)
    if Need.LAGS in needs:
        brought[Need.LAGS] = _lag_tensor(groups, update, width).to(device)
    if Need.PLANNED_UPDATES in needs:
        brought[Need.PLANNED_UPDATES] = torch.tensor(planned_updates)
    rewards_PG = torch.tensor([[row.reward for row in group] for group in groups], dtype=torch.float32, device=device)
    return Batch(
        rewards_PG=rewards_PG,
        logp_BT=logp_BT.detach().requires_grad_(),
        mask_BT=mask_BT,
        max_response_tokens=max_response_tokens,
        update=update,
        brought=brought,
    )
