"""The proof that a vLLM worker holds the weights it was given, on networks laid out as vLLM lays them out. Needs no vLLM."""

import itertools
import logging
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gmc.engines.vllm_proof import compared_share, differing_weights, members
from gmc.errors import GmcError

pytestmark = pytest.mark.unit

HIDDEN, HEADS, KV_HEADS, SIZE = 8, 4, 2, 2
PACKED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}


class Linear(nn.Module):
    """The attributes of a vLLM linear layer that say how it is cut."""

    def __init__(self, weight, *, ranks=1, rank=0, by_output=True, replicas=1, packed=False):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(0) if packed else weight, requires_grad=False)
        self.tp_size, self.tp_rank, self.num_kv_head_replicas = ranks, rank, replicas
        rows, columns = weight.shape
        self.output_size, self.output_size_per_partition = (rows * ranks if by_output else rows), rows
        self.input_size, self.input_size_per_partition = (columns if by_output else columns * ranks), columns
        self.params_dtype = weight.dtype
        if packed:
            self.cpu_linear = True
            self.quant_method = SimpleNamespace(apply=lambda module, x: x @ weight.T)  # raises for another width


class Embedding(nn.Module):
    def __init__(self, weight, start, end, padded_to):
        super().__init__()
        held = torch.zeros(padded_to, weight.shape[1], dtype=weight.dtype)
        held[: end - start] = weight[start:end]
        self.weight = nn.Parameter(held, requires_grad=False)
        self.shard_indices = SimpleNamespace(org_vocab_start_index=start, org_vocab_end_index=end)


def whole_weights():
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "layer.q_proj": (HEADS * SIZE, HIDDEN),
        "layer.k_proj": (KV_HEADS * SIZE, HIDDEN),
        "layer.v_proj": (KV_HEADS * SIZE, HIDDEN),
        "layer.o_proj": (HIDDEN, HEADS * SIZE),
        "embed": (10, HIDDEN),
        "norm": (HIDDEN,),
    }
    return {f"{name}.weight": 0.02 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def rows_of_heads(weight, heads):
    """Rows of some heads, in order."""
    return torch.cat([weight[head * SIZE : (head + 1) * SIZE] for head in heads])


def network(weights, *, dtype=torch.float32, ranks=1, rank=0, packed=False):
    """What one rank holds, cut by hand: each rank has its heads; with more ranks than key heads two ranks share one."""
    w = {name: tensor.to(dtype) for name, tensor in weights.items()}
    heads = [head for head in range(HEADS) if head * ranks // HEADS == rank]
    kv_heads = sorted({head * KV_HEADS // HEADS for head in heads})
    qkv = torch.cat(
        [rows_of_heads(w["layer.q_proj.weight"], heads)]
        + [rows_of_heads(w[f"layer.{name}_proj.weight"], kv_heads) for name in ("k", "v")]
    )
    o = torch.stack([w["layer.o_proj.weight"][:, head * SIZE + i] for head in heads for i in range(SIZE)], 1)
    cut = {"ranks": ranks, "rank": rank, "packed": packed}
    root, layer = nn.Module(), nn.Module()
    layer.qkv_proj = Linear(qkv, replicas=max(ranks // KV_HEADS, 1), **cut)
    layer.o_proj = Linear(o, by_output=False, **cut)
    bounds = [10 * step // ranks for step in range(ranks + 1)]
    root.layer, root.embed = layer, Embedding(w["embed.weight"], bounds[rank], bounds[rank + 1], 12)
    root.norm = nn.Module()
    root.norm.weight = nn.Parameter(w["norm.weight"], requires_grad=False)
    root.packed_modules_mapping = PACKED
    return root


@pytest.mark.parametrize(("ranks", "packed"), [(1, False), (1, True), (2, False), (2, True), (4, False), (4, True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_weights_pass_on_every_rank_and_all_are_compared(ranks, packed, dtype):
    for rank in range(ranks):
        found = differing_weights(
            network(whole_weights(), dtype=dtype, ranks=ranks, rank=rank, packed=packed), whole_weights(), 0
        )
        assert found["wrong"] == []
        assert found["checked"] == found["total"] > 0


@pytest.mark.parametrize(("ranks", "packed"), [(1, False), (1, True), (2, False), (2, True), (4, False), (4, True)])
def test_one_update_of_a_millionth_is_found_in_bfloat16(ranks, packed):
    """Signed steps of 1e-6 move about one bfloat16 number in a hundred: log-probs cannot show it, the numbers do."""
    old, generator = whole_weights(), torch.Generator().manual_seed(1)
    new = {name: w + 1e-6 * torch.randn(w.shape, generator=generator).sign() for name, w in old.items()}
    moved = sum(int((w.bfloat16() != old[name].bfloat16()).sum()) for name, w in new.items())
    assert 0 < moved < 0.1 * sum(w.numel() for w in old.values())
    stale = [
        differing_weights(network(old, dtype=torch.bfloat16, ranks=ranks, rank=rank, packed=packed), new, 0)
        for rank in range(ranks)
    ]
    assert any(found["wrong"] for found in stale)


@pytest.mark.parametrize("name", sorted(whole_weights()))
@pytest.mark.parametrize(("ranks", "packed"), [(1, False), (1, True), (2, False), (2, True)])
def test_one_other_number_is_found_and_its_layer_named(name, ranks, packed):
    weights = whole_weights()
    other = {key: tensor.clone() for key, tensor in weights.items()}
    other[name].view(-1)[-1] += 0.5
    found = [differing_weights(network(weights, ranks=ranks, rank=rank, packed=packed), other, 3) for rank in range(ranks)]
    layers = {layer for each in found for layer, _ in each["wrong"]}
    module = name.removesuffix(".weight")
    (expected,) = {module} if module in ("embed", "norm", "layer.o_proj") else {"layer.qkv_proj"}
    assert layers == {expected}


def test_what_is_laid_out_in_an_unknown_way_is_counted_not_accused():
    weights = whole_weights()
    root = network(weights)
    root.experts = nn.Module()
    root.experts.weight = nn.Parameter(torch.zeros(3, 5), requires_grad=False)
    found = differing_weights(root, weights, 0)
    assert found["wrong"] == []
    assert found["total"] - found["checked"] == 15


def counts_of(root, weights):
    found = differing_weights(root, weights, 0)
    return found["checked"], found["total"]


def test_a_share_that_is_not_compared_is_warned_of_once(caplog):
    weights = whole_weights()
    root = network(weights)
    known = counts_of(root, weights)
    root.experts = nn.Module()
    root.experts.weight = nn.Parameter(torch.zeros(3, 5), requires_grad=False)
    counts = [known, counts_of(root, weights)]
    with caplog.at_level(logging.WARNING, "gmc"):
        assert compared_share([known], "vLLM", None) == 1.0
        assert caplog.messages == []
        share = compared_share(counts, "vLLM", None)
        assert share == 2 * known[1] / (2 * known[1] + 15) < 1
        assert compared_share(counts, "vLLM", share) == share
    assert caplog.messages == [
        f"vLLM: {100 * share:.2f} % of its numbers are compared with the weights given, the others are not proved"
    ]


def test_a_worker_that_compared_nothing_is_refused():
    weights = whole_weights()
    root = nn.Module()
    root.experts = nn.Module()
    root.experts.weight = nn.Parameter(torch.zeros(3, 5), requires_grad=False)
    with pytest.raises(GmcError, match=r"^vLLM: none of the 15 numbers that it holds could be compared") as error:
        compared_share([counts_of(network(weights), weights), counts_of(root, weights)], "vLLM", None)
    assert "\n" not in str(error.value)


def test_packed_layers_are_asked_for_other_columns_each_time():
    """A number in one column of 512 is found sooner or later, since 64 columns are asked for at a time."""
    weight = torch.zeros(4, 512)
    root = nn.Module()
    root.proj = Linear(weight, packed=True)
    given = weight.clone()
    given[0, 100] = 1.0
    hits = [bool(differing_weights(root, {"proj.weight": given}, seed)["wrong"]) for seed in range(60)]
    assert 1 <= sum(hits) < 30


def test_members_of_packed_modules():
    assert members("model.layers.0.qkv_proj", PACKED) == [f"model.layers.0.{kind}_proj" for kind in "qkv"]
    assert members("norm", PACKED) == ["norm"]
    assert list(itertools.chain(members("gate_up_proj", PACKED))) == ["gate_proj", "up_proj"]
