"""The probe that tells whether an engine holds the weights it was given. Needs no vLLM."""

import pytest
import torch
from tiny_models import tiny_model

from gmc.engines.probe import FLOORS, compare_probe, probe_ids, reference_logprobs

pytestmark = pytest.mark.unit

FLOOR = FLOORS[torch.float32]


def _noise(scale: float, seed: int, size: int = 94) -> torch.Tensor:
    return scale * torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_reference_uses_the_weights_given_and_changes_nothing() -> None:
    model, other = tiny_model(0), tiny_model(1)
    probes = probe_ids(model.vocabulary_size, model.context_tokens)
    before = {name: tensor.clone() for name, tensor in model.weights().items()}
    found = reference_logprobs(model, other.weights(), probes)
    with torch.no_grad():
        logits = other.network(input_ids=torch.tensor(probes)).logits.double().log_softmax(-1)
    expected = [
        float(logits[row, position - 1, ids[position]]) for row, ids in enumerate(probes) for position in range(1, len(ids))
    ]
    assert found.tolist() == pytest.approx(expected, abs=1e-5)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.weights().items())


def test_probe_ids_are_fixed_and_fit_the_context() -> None:
    assert probe_ids(50, 512) == probe_ids(50, 512)
    assert {len(ids) for ids in probe_ids(50, 7)} == {7}
    assert all(0 <= index < 50 for ids in probe_ids(50, None) for index in ids)


def test_rounding_passes() -> None:
    trainer = _noise(3.0, 0)
    result = compare_probe(trainer + _noise(5e-6, 1), trainer, floor=FLOOR)
    assert result.fault is None
    assert result.rms == pytest.approx(5e-6, rel=0.3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_fail(bad: float) -> None:
    trainer = _noise(3.0, 0)
    engine = trainer.clone()
    engine[3] = bad
    assert "not finite" in str(compare_probe(engine, trainer, floor=FLOOR).fault)


def test_one_layer_of_old_weights_is_far_beyond_the_floor() -> None:
    old, new = tiny_model(0), tiny_model(1)
    probes = probe_ids(old.vocabulary_size, old.context_tokens)
    mixed = {**new.weights(), "model.layers.1.mlp.down_proj.weight": old.weights()["model.layers.1.mlp.down_proj.weight"]}
    result = compare_probe(reference_logprobs(new, mixed, probes), reference_logprobs(new, new.weights(), probes), floor=FLOOR)
    assert "rounding explains" in str(result.fault)


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float32, 5e-6), (torch.bfloat16, 0.05)])
def test_weights_one_small_update_old_are_found_below_the_floor(dtype: torch.dtype, rounding: float) -> None:
    """A stale engine differs by the update alone, which the floor would let pass: its share of the move is 0."""
    before = _noise(3.0, 0)
    after = before + _noise(3 * rounding, 1)
    arguments = {"floor": FLOORS[dtype], "before_N": before, "usual_rms": rounding}
    assert compare_probe(after + _noise(rounding, 2), after, **arguments).fault is None
    stale = compare_probe(before + _noise(rounding, 2), after, **arguments)
    assert stale.rms < FLOORS[dtype]
    assert "followed only" in str(stale.fault)


def test_a_move_lost_in_rounding_is_not_judged() -> None:
    before = _noise(3.0, 0)
    after = before + _noise(0.01, 1)
    result = compare_probe(before + _noise(0.05, 2), after, floor=0.3, before_N=before, usual_rms=0.05)
    assert (result.share, result.fault) == (None, None)
