"""Checkpoints: a round trip, what is passed over, what is an error, pruning, and marker after data."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gmc.errors import DataError, GmcError
from gmc.store import checkpoints as module
from gmc.store.checkpoints import load_newest, save_checkpoint
from gmc.store.files import disk_errors, ready_directory

pytestmark = pytest.mark.unit


def save(directory: Path, update: int, keep: int = 3, **changes: Any) -> Path:
    parts: dict[str, Any] = {
        "weights": {"a.weight": torch.full((3, 4), update + 0.1), "b": torch.arange(5.0)},
        "optimizer": {"0/step": torch.tensor(update), "0/state1": torch.arange(6, dtype=torch.uint8).reshape(2, 3)},
        "estimator": {"rule.count": torch.tensor([1.5, float("nan")], dtype=torch.float64), "empty": torch.zeros(0, 3)},
        "extra": {"run_id": "run-a", "planned_updates": 400, "exact": 0.1, "nested": {"list": [1, None]}},
    }
    return save_checkpoint(directory, update, **{**parts, **changes}, keep=keep)


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name].nan_to_num(7.0), tensor.nan_to_num(7.0)), name
        assert found[name].shape == tensor.shape


def test_round_trip(tmp_path: Path) -> None:
    path = save(tmp_path, 100)
    assert path == tmp_path / "u000100"
    found = load_newest(tmp_path, run_id="run-a")
    assert found is not None
    assert (found.update, found.path) == (100, path)
    assert_equal(found.weights, {"a.weight": torch.full((3, 4), 100.1), "b": torch.arange(5.0)})
    assert_equal(found.optimizer, {"0/step": torch.tensor(100), "0/state1": torch.arange(6, dtype=torch.uint8).reshape(2, 3)})
    assert_equal(
        found.estimator,
        {"rule.count": torch.tensor([1.5, float("nan")], dtype=torch.float64), "empty": torch.zeros(0, 3)},
    )
    assert found.extra == {"run_id": "run-a", "planned_updates": 400, "exact": 0.1, "nested": {"list": [1, None]}}


def test_tensors_that_share_storage_are_stored_once(tmp_path: Path) -> None:
    big = torch.randn(1000, 10)
    weights = {"embed": big, "head": big, "transposed": big.T, "row": big[3], "plain": big.clone()}
    path = save(tmp_path, 1, weights=weights, optimizer={"0/qmap1": big, "1/qmap1": big})
    found = load_newest(tmp_path)
    assert found is not None
    assert_equal(found.weights, weights)
    assert_equal(found.optimizer, {"0/qmap1": big, "1/qmap1": big})
    assert found.weights["head"] is found.weights["embed"]
    assert (path / "optimizer.safetensors").stat().st_size < 1.1 * big.nbytes
    assert (path / "weights.safetensors").stat().st_size < 3.2 * big.nbytes


def test_the_newest_complete_one_is_loaded(tmp_path: Path) -> None:
    assert load_newest(tmp_path / "absent") is None
    assert load_newest(tmp_path) is None
    for update in (9, 10, 1_000_000):
        save(tmp_path, update)
    (tmp_path / "u2000000").mkdir()
    (tmp_path / "notes").mkdir()
    found = load_newest(tmp_path)
    assert found is not None
    assert found.update == 1_000_000


def test_without_its_marker_a_checkpoint_is_passed_over(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (save(tmp_path, 2) / "READY").unlink()
    found = load_newest(tmp_path)
    assert found is not None
    assert found.update == 1


@pytest.mark.parametrize("part", ["weights.safetensors", "optimizer.safetensors", "estimator.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["gone", "cut", "empty", "noise"])
def test_a_damaged_complete_checkpoint_is_an_error_that_names_it(tmp_path: Path, part: str, damage: str) -> None:
    save(tmp_path, 1)
    file = save(tmp_path, 2) / part
    if damage == "gone":
        file.unlink()
    else:
        content = file.read_bytes()
        file.write_bytes({"cut": content[:-3], "empty": b"", "noise": b"\xff" * len(content)}[damage])
    with pytest.raises(DataError) as caught:
        load_newest(tmp_path)
    where = f"{tmp_path / 'u000002'}" + ("/state.json: " if part == "state.json" else ": marked complete but cannot be loaded")
    assert str(caught.value).startswith(where)
    assert "delete it to resume from the checkpoint before it" in str(caught.value)
    shutil.rmtree(tmp_path / "u000002")
    assert load_newest(tmp_path) is not None


@pytest.mark.parametrize("state", ["[]", "{}", '{"update": 2}', '{"update": null, "extra": {}}', '{"update": 2, "extra": 3}'])
def test_a_state_file_of_another_shape_is_an_error(tmp_path: Path, state: str) -> None:
    (save(tmp_path, 2) / "state.json").write_text(state)
    with pytest.raises(DataError, match=r"u000002/state\.json: damaged \(.*\); restore "):
        load_newest(tmp_path)


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    save(tmp_path, 2)
    with pytest.raises(DataError, match="u000002: belongs to run 'run-a', not 'run-b'"):
        load_newest(tmp_path, run_id="run-b")


def test_pruning_keeps_the_newest_complete_ones(tmp_path: Path) -> None:
    (tmp_path / "u000007").mkdir()
    (tmp_path / "mine").mkdir()
    for update in (10, 20, 30, 40):
        save(tmp_path, update, keep=2)
    assert {path.name for path in tmp_path.iterdir()} == {"u000030", "u000040", "mine"}
    save(tmp_path, 50, keep=0)
    assert {path.name for path in tmp_path.iterdir()} == {"u000050", "mine"}


def test_nothing_is_pruned_when_saving_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 10, keep=1)

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "save_file", fail)
    with pytest.raises(Exception, match=r"u000020: cannot write, the disk is full"):
        save(tmp_path, 20, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["u000010"]


def test_a_full_disk_inside_the_temporary_folder_names_the_final_one(tmp_path: Path) -> None:
    def fill() -> None:
        with ready_directory(tmp_path / "u000001") as folder, disk_errors(folder / "state.json"):
            raise OSError(122, "Disk quota exceeded")

    with pytest.raises(GmcError) as caught:
        fill()
    assert str(caught.value).startswith(f"{tmp_path / 'u000001'}: cannot write")
    with pytest.raises(GmcError, match="cannot write: Permission denied"), disk_errors(tmp_path):
        raise PermissionError(13, "Permission denied")


def test_saving_the_same_update_again_keeps_the_first(tmp_path: Path) -> None:
    first = (save(tmp_path, 3) / "weights.safetensors").stat().st_mtime_ns
    save(tmp_path, 3)
    assert (tmp_path / "u000003" / "weights.safetensors").stat().st_mtime_ns == first


def test_extra_must_be_strict_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        save(tmp_path, 3, extra={"loss": float("nan")})
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def disk_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Every fsync and rename, in order, with the path it is about."""
    calls: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        calls.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def record_replace(source: Any, target: Any) -> None:
        calls.append(("rename", str(target)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    return calls


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc to name a descriptor")
def test_the_marker_comes_after_all_data_is_durable(tmp_path: Path, disk_calls: list[tuple[str, str]]) -> None:
    path = tmp_path / "u000001"
    with ready_directory(path) as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "part").write_text("x")
        (folder / "weights").write_text("y")
    temporary = next(name for kind, name in disk_calls if kind == "fsync")
    root = temporary[: temporary.index(".tmp-") + len(".tmp-")]
    kinds = [(kind, name.replace(root, "TMP") if root in name else name) for kind, name in disk_calls]
    rename = kinds.index(("rename", str(path)))
    before = {name.split("/", 1)[1] if "/" in name else "" for kind, name in kinds[:rename] if name.startswith("TMP")}
    assert before == {"weights", "inner/part", "inner", ""}
    marker = kinds.index(("rename", str(path / "READY")))
    assert rename < kinds.index(("fsync", str(tmp_path))) < marker
    assert kinds[-1] == ("fsync", str(path))
    assert marker == len(kinds) - 2


def test_an_error_while_filling_leaves_nothing(tmp_path: Path) -> None:
    def fill_half() -> None:
        with ready_directory(tmp_path / "u000001") as folder:
            (folder / "half").write_text("x")
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fill_half()
    assert list(tmp_path.iterdir()) == []


def test_state_is_plain_json(tmp_path: Path) -> None:
    content = json.loads((save(tmp_path, 5) / "state.json").read_text())
    assert content["update"] == 5
    assert content["extra"]["planned_updates"] == 400


@pytest.mark.parametrize("part", ["weights", "optimizer", "estimator"])
def test_one_flipped_bit_is_an_error(tmp_path: Path, part: str) -> None:
    file = save(tmp_path, 2) / f"{part}.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match=rf"u000002: .*{part}.safetensors is not the file that was saved"):
        load_newest(tmp_path)


@pytest.mark.parametrize("source", ["x", [], 1.5])
def test_a_state_of_another_type_is_an_error(tmp_path: Path, source: Any) -> None:
    save(tmp_path, 2, extra={"run_id": "run-a", "source": source})
    with pytest.raises(DataError, match=r"u000002/state\.json: damaged \(extra\.source is "):
        load_newest(tmp_path)
