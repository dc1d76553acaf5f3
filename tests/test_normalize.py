"""Loss normalizers against sums written out by hand."""

import math

import pytest
import torch

from gmc.estimators.normalizer import Normalizer
from gmc.gradients.normalize import normalized

pytestmark = pytest.mark.unit

OBJECTIVE = torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, math.nan], [math.nan, math.nan, math.inf], [5.0, math.nan, math.nan]])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0], [0, 0, 0], [1, 0, 0]], dtype=torch.bool)


@pytest.mark.parametrize(
    ("normalizer", "wanted"),
    [
        (Normalizer.TOKEN_MEAN, (1 + 2 + 3 + 10 + 20 + 5) / 6),
        (Normalizer.SEQ_MEAN_TOKEN_MEAN, (2 + 15 + 0 + 5) / 4),
        (Normalizer.SEQ_MEAN_TOKEN_SUM, (6 + 30 + 0 + 5) / 4),
        (Normalizer.SEQ_MEAN_TOKEN_SUM_NORM, (6 + 30 + 0 + 5) / 4 / 50),
    ],
)
def test_by_hand_with_padding_and_an_empty_response(normalizer, wanted):
    assert normalized(OBJECTIVE, MASK, normalizer, 50).item() == pytest.approx(wanted)


def test_doubling_lengths_leaves_the_sequence_mean_of_token_means_alone():
    generator = torch.Generator().manual_seed(0)
    objective = torch.randn(4, 6, dtype=torch.float64, generator=generator)
    mask = torch.rand(4, 6, generator=generator) > 0.3
    doubled = normalized(torch.cat([objective] * 2, 1), torch.cat([mask] * 2, 1), Normalizer.SEQ_MEAN_TOKEN_MEAN, 9)
    assert doubled.item() == pytest.approx(normalized(objective, mask, Normalizer.SEQ_MEAN_TOKEN_MEAN, 9).item(), rel=1e-6)


@pytest.mark.parametrize("normalizer", list(Normalizer))
def test_padding_changes_nothing(normalizer):
    generator = torch.Generator().manual_seed(0)
    objective = torch.randn(4, 5, dtype=torch.float64, generator=generator)
    mask = torch.rand(4, 5, generator=generator) > 0.3
    padded = torch.nn.functional.pad(objective, (0, 3), value=math.nan), torch.nn.functional.pad(mask, (0, 3))
    assert normalized(*padded, normalizer, 9).item() == pytest.approx(normalized(objective, mask, normalizer, 9).item())


@pytest.mark.parametrize("normalizer", list(Normalizer))
def test_one_token_and_none(normalizer):
    one, none = torch.tensor([[True, False]]), torch.tensor([[False, False]])
    divisor = 8 if normalizer is Normalizer.SEQ_MEAN_TOKEN_SUM_NORM else 1
    assert normalized(torch.tensor([[3.0, 5.0]]), one, normalizer, 8).item() == 3.0 / divisor
    assert normalized(torch.tensor([[3.0, 5.0]]), none, normalizer, 8).item() == 0.0
