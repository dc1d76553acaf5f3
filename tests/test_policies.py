"""Published policies: a Hugging Face folder in float32 that loads elsewhere, visible only when complete."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.utils import logging

from gmc import __version__
from gmc.errors import DataError, GmcError
from gmc.models import LanguageModel, load_model, tokenizer_hash, weights_hash
from gmc.store.policies import list_policies, newest_policy, publish_policy, read_policy_info, set_aside_policies

pytestmark = pytest.mark.unit


def make_model(tied: bool = True, seed: int = 0) -> LanguageModel:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=16,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        tie_word_embeddings=tied,
        eos_token_id=[1, 2],
    )
    words = {word: index for index, word in enumerate(["<pad>", "<eos>", "<end>", *"abcdefgh"])}
    inner = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", pad_token="<pad>")
    return LanguageModel(Qwen3ForCausalLM(config), tokenizer, "some/base", frozenset([1, 2]), len(tokenizer))


@pytest.mark.parametrize("tied", [True, False])
def test_a_published_policy_loads_elsewhere(tmp_path: Path, tied: bool) -> None:
    model = make_model(tied)
    path = publish_policy(model, tmp_path, 100, "run-a")
    assert path == tmp_path / "v000100"
    names = {file.name for file in path.iterdir()}
    assert {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "README.md",
        "gmc.json",
        "READY",
    } <= names
    with safe_open(path / "model.safetensors", framework="pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float32}  # noqa: SIM118
        assert ("lm_head.weight" in file.keys()) is not tied  # noqa: SIM118
    assert json.loads((path / "config.json").read_text())["dtype"] == "float32"
    assert json.loads((path / "generation_config.json").read_text())["eos_token_id"] == [1, 2]

    loaded = AutoModelForCausalLM.from_pretrained(path)
    assert loaded.dtype == torch.float32
    ids = torch.tensor([[3, 4, 5, 6]])
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, model.network.train(False)(ids).logits)
    assert AutoTokenizer.from_pretrained(path)("abc")["input_ids"] == model.tokenizer("abc")["input_ids"]


def test_gmc_loads_what_it_publishes_with_the_same_hashes(tmp_path: Path) -> None:
    model = make_model()
    path = publish_policy(model, tmp_path, 3, "run-a")
    again = load_model(path)
    info = read_policy_info(path)
    assert weights_hash(again.weights()) == weights_hash(model.weights()) == info.weights_hash
    assert tokenizer_hash(again.tokenizer) == tokenizer_hash(model.tokenizer)
    assert again.end_token_ids == model.end_token_ids
    assert (info.run_id, info.version, info.base_model, info.gmc_version) == ("run-a", 3, "some/base", __version__)


def test_the_card_names_the_policy(tmp_path: Path) -> None:
    card = (publish_policy(make_model(), tmp_path, 100, "run-a") / "README.md").read_text()
    assert card.startswith("---\n")
    for words in ("Policy version 100", "`some/base`", "`run-a`", "float32", "from_pretrained"):
        assert words in card


@pytest.mark.parametrize("values", [{"do_sample": False, "temperature": 0.6, "top_p": 0.9}, {"do_sample": False, "top_k": 5}])
def test_a_generation_config_that_transformers_refuses_to_save(tmp_path: Path, values: dict[str, Any]) -> None:
    model = make_model()
    own = GenerationConfig(eos_token_id=[1, 2], pad_token_id=0, **values)
    model.network.generation_config = own
    path = publish_policy(model, tmp_path, 1, "run-a")
    saved = json.loads((path / "generation_config.json").read_text())
    assert (saved["eos_token_id"], saved["pad_token_id"]) == ([1, 2], 0)
    assert model.network.generation_config is own
    assert load_model(path).end_token_ids == {1, 2}


def test_publishing_draws_no_progress_bar_and_leaves_the_setting(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    logging.enable_progress_bar()
    publish_policy(make_model(), tmp_path, 1, "run-a")
    assert capfd.readouterr().err == ""
    assert logging.is_progress_bar_enabled()


def test_newest_and_list(tmp_path: Path) -> None:
    assert newest_policy(tmp_path / "absent") is None
    assert list_policies(tmp_path) == []
    model = make_model()
    for version in (2, 1_000_000, 10):
        publish_policy(model, tmp_path, version, "run-a")
    (tmp_path / "v2000000").mkdir()
    (tmp_path / ".tmp-v000003-x-1-0123abcd").mkdir()
    (tmp_path / ".tmp-v000003-x-1-0123abcd" / "READY").touch()
    (tmp_path / "vfinal").mkdir()
    assert list_policies(tmp_path) == [(n, tmp_path / f"v{n:06d}") for n in (2, 10, 1_000_000)]
    assert newest_policy(tmp_path) == tmp_path / "v1000000"


def test_a_half_written_folder_is_never_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever step fails, readers see the older policy, and publishing again succeeds."""
    publish_policy(make_model(), tmp_path, 1, "run-a")
    replace, fsync = os.replace, os.fsync
    for failing in range(100):
        calls = 0

        def fail_at(function: Any, failing: int = failing) -> Any:
            def call(*args: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == failing + 1:
                    raise OSError(5, "Input/output error")
                return function(*args)

            return call

        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", fail_at(replace))
            patched.setattr(os, "fsync", fail_at(fsync))
            try:
                publish_policy(make_model(seed=failing), tmp_path, 2, "run-a")
            except (OSError, GmcError):
                for _, path in list_policies(tmp_path):
                    assert weights_hash(load_model(path).weights()) == read_policy_info(path).weights_hash
                assert newest_policy(tmp_path) in (tmp_path / "v000001", tmp_path / "v000002")
                continue
        break
    else:
        pytest.fail("publishing never succeeded")
    assert failing > 5
    assert newest_policy(tmp_path) == tmp_path / "v000002"
    assert read_policy_info(tmp_path / "v000002").weights_hash == weights_hash(make_model(seed=failing).weights())


def test_publishing_again_changes_only_what_differs(tmp_path: Path) -> None:
    path = publish_policy(make_model(), tmp_path, 1, "run-a")
    before = (path / "model.safetensors").stat().st_mtime_ns
    publish_policy(make_model(), tmp_path, 1, "run-a")
    assert (path / "model.safetensors").stat().st_mtime_ns == before
    publish_policy(make_model(seed=1), tmp_path, 1, "run-a")
    assert read_policy_info(path).weights_hash == weights_hash(make_model(seed=1).weights())
    publish_policy(make_model(seed=1), tmp_path, 1, "run-b")
    assert read_policy_info(path).run_id == "run-b"
    assert [child.name for child in tmp_path.iterdir()] == ["v000001"]


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()

    def fail(folder: Path) -> None:
        (Path(folder) / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model.network, "save_pretrained", fail)
    with pytest.raises(GmcError, match=r"v000001: cannot write, the disk is full"):
        publish_policy(model, tmp_path, 1, "run-a")
    assert list(tmp_path.iterdir()) == []


def test_later_policies_are_set_aside(tmp_path: Path) -> None:
    model = make_model()
    for version in (1, 2, 3):
        publish_policy(model, tmp_path, version, "run-a")
    assert set_aside_policies(tmp_path, 1) == [tmp_path / "aside-1" / "v000002", tmp_path / "aside-1" / "v000003"]
    assert newest_policy(tmp_path) == tmp_path / "v000001"
    assert set_aside_policies(tmp_path, 1) == []
    publish_policy(model, tmp_path, 2, "run-a")
    assert set_aside_policies(tmp_path, 1) == [tmp_path / "aside-2" / "v000002"]


@pytest.mark.parametrize(
    ("content", "words"), [("{", "not valid JSON"), ('{"run_id": "a"}', "version is missing"), ("[]", "no table")]
)
def test_a_damaged_record_is_an_error_naming_the_file(tmp_path: Path, content: str, words: str) -> None:
    path = publish_policy(make_model(), tmp_path, 1, "run-a")
    (path / "gmc.json").write_text(content)
    with pytest.raises(DataError) as caught:
        read_policy_info(path)
    assert str(path / "gmc.json") in str(caught.value)
    assert words in str(caught.value)
