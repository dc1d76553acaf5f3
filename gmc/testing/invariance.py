"""What must change nothing: padding, the order of rows and groups, splitting the batch."""

import torch

from gmc.testing.batches import pad, take_groups, take_rows
from gmc.testing.rule import SEEDS, Rule, assert_same


def check_padding(rule: Rule) -> None:
    """Wider arrays with garbage at padding give the same gradient and none at padding."""
    for seed in SEEDS:
        batch = rule.batch(seed)
        width = batch.logp_BT.shape[1]
        before, after = rule.outcome(batch), rule.outcome(pad(batch, 3))
        assert_same(after.gradient_BT[:, :width], before.gradient_BT, "padding changes the gradient")
        assert not after.gradient_BT[~pad(batch, 3).mask_BT].any(), "padding receives a gradient"
        assert abs(after.learning_rate_scale - before.learning_rate_scale) < 1e-9, "padding changes the learning-rate scale"


def check_row_order(rule: Rule) -> None:
    """Permuting the responses of each group permutes the gradient and nothing else."""
    for seed in SEEDS:
        batch = rule.batch(seed)
        draw = torch.Generator().manual_seed(seed)
        rows = [group * batch.group_size + torch.randperm(batch.group_size, generator=draw) for group in range(batch.groups)]
        order = torch.cat(rows)
        after = rule.outcome(take_rows(batch, order, batch.groups))
        assert_same(after.gradient_BT, rule.outcome(batch).gradient_BT[order], "the order of a group's responses matters")


def check_group_order(rule: Rule) -> None:
    """Permuting the groups permutes the gradient and nothing else."""
    for seed in SEEDS:
        batch = rule.batch(seed)
        reverse = list(reversed(range(batch.groups)))
        after = take_groups(batch, reverse)
        gradient_PGT = rule.outcome(batch).gradient_BT.reshape(batch.groups, batch.group_size, -1)
        expected = gradient_PGT[reverse].reshape_as(batch.logp_BT)
        assert_same(rule.outcome(after).gradient_BT, expected, "the order of the groups matters")


def check_split(rule: Rule) -> None:
    """Unless a weight looks at the whole batch, group by group gives the same gradient as all groups at once."""
    if rule.declared.scope == "batch":
        return
    for seed in SEEDS:
        batch = rule.batch(seed)
        parts = [rule.outcome(take_groups(batch, [group])).gradient_BT for group in range(batch.groups)]
        assert_same(torch.cat(parts), rule.outcome(batch).gradient_BT, "splitting the batch into groups changes the gradient")
