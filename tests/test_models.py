"""Loading a language model: dtype, end ids, vocabulary, hashes, and what is refused."""

import json

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import character_tokenizer, tiny_network

from gmc.errors import DataError, UsageError
from gmc.models import load_model, tokenizer_hash, weights_hash

pytestmark = pytest.mark.unit


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "model"
    network = tiny_network()
    network.generation_config.eos_token_id = 3
    network.to(torch.bfloat16).save_pretrained(path)
    character_tokenizer().save_pretrained(path)
    return path


def test_weights_become_float32_and_every_end_id_is_known(folder):
    model = load_model(folder)
    assert {parameter.dtype for parameter in model.network.parameters()} == {torch.float32}
    assert not model.network.training
    assert model.end_token_ids == {1, 2, 3}, "tokenizer, config and generation config each name end ids"
    assert model.vocabulary_size == len(model.tokenizer) < model.network.config.vocab_size
    assert model.context_tokens == 512
    assert model.source == str(folder)


def test_the_weights_hash_is_that_of_the_published_file(folder, tmp_path):
    model = load_model(folder)
    model.network.save_pretrained(tmp_path / "published")
    published = load_file(tmp_path / "published" / "model.safetensors")
    assert weights_hash(published) == weights_hash(model.weights()) == weights_hash(load_model(folder).weights())


def test_the_weights_hash_sees_names_shapes_and_values():
    weights = {"a": torch.zeros(2, 3), "b": torch.ones(1)}
    reordered = {"b": torch.ones(1), "a": torch.zeros(2, 3)}
    assert weights_hash(weights) == weights_hash(reordered)
    assert weights_hash(weights) == weights_hash({name: value.to(torch.bfloat16) for name, value in weights.items()})
    others = [
        {"a": torch.zeros(3, 2), "b": torch.ones(1)},
        {"a": torch.zeros(2, 3), "c": torch.ones(1)},
        {"a": torch.zeros(2, 3), "b": torch.full((1,), 1 + 2**-23)},
    ]
    assert len({weights_hash(item) for item in (weights, *others)}) == 4


def test_the_tokenizer_hash_sees_added_tokens():
    first, second = character_tokenizer(), character_tokenizer()
    assert tokenizer_hash(first) == tokenizer_hash(second)
    second.add_tokens(["<more>"])
    assert tokenizer_hash(first) != tokenizer_hash(second)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere: no such folder"):
        load_model(tmp_path / "nowhere")


def test_a_folder_that_is_no_model_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no config\.json"):
        load_model(tmp_path)


def test_a_folder_without_weights_is_named(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(DataError, match="no weights"):
        load_model(folder)


def test_pickled_weights_are_not_weights(folder):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(DataError, match="no weights"):
        load_model(folder)


def test_a_truncated_weight_file_is_an_error_of_that_folder(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(DataError, match=r"model: cannot load the model"):
        load_model(folder)


def test_incomplete_weights_name_the_first_missing_tensor(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"lack 1 tensors, the first is model\.norm\.weight"):
        load_model(folder)


def test_a_folder_without_a_tokenizer_is_named(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(DataError, match="tokenizer"):
        load_model(folder)


def test_an_unknown_architecture_is_one_line(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "no-such-architecture"}))
    with pytest.raises(DataError) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_larger_than_the_head_is_refused(folder):
    tokenizer = character_tokenizer()
    tokenizer.add_tokens([f"<{index}>" for index in range(100)])
    tokenizer.save_pretrained(folder)
    with pytest.raises(DataError, match="output layer only"):
        load_model(folder)


def test_a_name_that_is_nothing_says_so(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match="neither a folder here nor"):
        load_model("nobody/no-such-model-at-all")
