"""How a per-token objective becomes one number."""

from enum import StrEnum


class Normalizer(StrEnum):
    """How the masked per-token objective becomes one number, by the field's names. Denominators are global and fixed.

    token-mean: Σ over tokens / all response tokens of the batch. seq-mean-token-mean: mean over sequences of the mean over
    tokens. seq-mean-token-sum: mean over sequences of the sum. seq-mean-token-sum-norm: that divided by the constant
    L_max, the run's maximum response tokens (Dr. GRPO's constant; never the padded length).
    """

    TOKEN_MEAN = "token-mean"
    SEQ_MEAN_TOKEN_MEAN = "seq-mean-token-mean"
    SEQ_MEAN_TOKEN_SUM = "seq-mean-token-sum"
    SEQ_MEAN_TOKEN_SUM_NORM = "seq-mean-token-sum-norm"
