"""A follower reads, of a new policy, the files that changed, and nothing else; what it cannot read leaves its weights alone."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from gmc.errors import DataError
from gmc.generation.published_weights import PublishedWeights
from gmc.models import load_model, weights_hash
from gmc.store.files import checksum, read_json
from gmc.store.policies import publish_policy, read_policy_info

pytestmark = pytest.mark.unit


@pytest.fixture
def model():
    return load_model("embedded")


def digests_of(folder):
    return {file.name: checksum(file) for file in folder.glob("*.safetensors")}


def in_two_files(policy, folder):
    """The weights of a policy as two ranks publish them."""
    folder.mkdir()
    tensors = load_file(policy / "model.safetensors")
    names = sorted(tensors)
    for number, own in enumerate((names[:5], names[5:]), start=1):
        save_file({name: tensors[name] for name in own}, folder / f"model-{number:05d}-of-00002.safetensors")
    return tensors, names


def test_a_policy_says_which_files_hold_its_weights(model, tmp_path):
    folder = publish_policy(model, tmp_path, 1, "run")
    assert read_policy_info(folder).files == digests_of(folder)
    written = (folder / "gmc.json").stat().st_mtime_ns
    assert publish_policy(model, tmp_path, 1, "run") == folder
    assert (folder / "gmc.json").stat().st_mtime_ns == written, "the same weights are not published twice"
    with torch.no_grad():
        next(iter(model.weights().values())).add_(1)
    assert read_policy_info(publish_policy(model, tmp_path, 1, "run")).files == digests_of(folder)


def test_only_files_that_changed_are_read(model, tmp_path):
    tensors, names = in_two_files(publish_policy(model, tmp_path, 0, "run"), tmp_path / "one")
    held = PublishedWeights(load_model("embedded"))
    held.take(tmp_path / "one", digests_of(tmp_path / "one"))
    assert len(held.read) == 2
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    second = "model-00002-of-00002.safetensors"
    changed = {name: tensors[name] + 1 for name in names[5:]}
    save_file(changed, tmp_path / "two" / second)
    held.take(tmp_path / "two", digests_of(tmp_path / "two"))
    assert held.read == [second]
    assert weights_hash(held._model.weights()) == weights_hash({**tensors, **changed})
    held.take(tmp_path / "two", digests_of(tmp_path / "two"))
    assert held.read == []
    held.forget()
    held.take(tmp_path / "one", digests_of(tmp_path / "one"))
    assert len(held.read) == 2
    assert weights_hash(held._model.weights()) == weights_hash(tensors)


def test_policies_of_other_tensors_or_without_digests_are_loaded_whole(model, tmp_path):
    folder = publish_policy(model, tmp_path, 0, "run")
    follower = load_model("embedded")
    with torch.no_grad():
        for tensor in follower.weights().values():
            tensor.zero_()
    PublishedWeights(follower).take(folder, {})
    assert weights_hash(follower.weights()) == read_json(folder / "gmc.json")["weights_hash"]


def test_what_cannot_be_read_leaves_the_weights_alone(model, tmp_path):
    with torch.no_grad():
        for tensor in model.weights().values():
            tensor.add_(1)
    in_two_files(publish_policy(model, tmp_path, 0, "run"), tmp_path / "one")
    digests = digests_of(tmp_path / "one")
    (tmp_path / "one" / "model-00002-of-00002.safetensors").write_bytes(b"cut")
    follower = load_model("embedded")
    before = weights_hash(follower.weights())
    with pytest.raises(DataError, match="its weights cannot be read"):
        PublishedWeights(follower).take(tmp_path / "one", digests)
    assert weights_hash(follower.weights()) == before
