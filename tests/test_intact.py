"""A published policy whose files have changed is neither scored nor exported as the policy of its run."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.evaluation.subjects import model_candidate, run_candidates
from gmc.models import load_model
from gmc.resolving.resolve import resolve_settings
from gmc.store.policies import publish_policy
from gmc.store.run_directory import RunDirectory

pytestmark = pytest.mark.unit

QUICK = ("--limit", "2", "--n", "1", "--max-tokens", "8", "--no-greedy")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = RunDirectory.create(tmp_path_factory.mktemp("intact") / "run", model="embedded", seed=0)
    publish_policy(load_model("embedded"), run.policies, 4, run.run_id)
    run.save_settings("train", resolve_settings(flags={}, assignments=[]))
    return run.path


@pytest.fixture
def policy(published: Path, tmp_path: Path) -> Path:
    shutil.copytree(published, tmp_path / "run")
    return tmp_path / "run" / "policies" / "v000004"


def flip(policy: Path) -> None:
    content = bytearray((policy / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (policy / "model.safetensors").write_bytes(content)


def change_record(policy: Path, **changes: object) -> None:
    record = json.loads((policy / "gmc.json").read_text("utf-8"))
    (policy / "gmc.json").write_text(json.dumps({**record, **changes}), "utf-8")


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a flipped bit": (flip, r"model\.safetensors: is not the file that was published"),
    "empty weights": (lambda p: (p / "model.safetensors").write_bytes(b""), r"model\.safetensors: is not the file"),
    "no weights": (lambda p: (p / "model.safetensors").unlink(), r"its files of weights are \[\]"),
    "a file more": (lambda p: (p / "more.safetensors").write_bytes(b"x"), r"its files of weights are"),
    "null record": (lambda p: (p / "gmc.json").write_text("null"), r"gmc\.json: damaged"),
    "empty record": (lambda p: (p / "gmc.json").write_text("{}"), r"gmc\.json: damaged"),
    "no record": (lambda p: (p / "gmc.json").unlink(), r"gmc\.json: no such file"),
    "no config": (lambda p: (p / "config.json").write_text("{}"), r"v000004: cannot load the model"),
    "junk as tokenizer": (lambda p: (p / "tokenizer.json").write_text("junk"), r"v000004: cannot load the tokenizer"),
    "another tokenizer": (lambda p: change_record(p, tokenizer_hash="0" * 64), r"the hash of its tokenizer"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_policy_is_refused_in_one_line(policy: Path, damage: str, tmp_path: Path) -> None:
    spoil, message = DAMAGE[damage]
    spoil(policy)
    run = str(policy.parent.parent)
    commands = [["export", run, "--to", str(tmp_path / "out"), "--write"], ["eval", "--run", run, *QUICK]]
    for command in (*commands, ["eval", "--model", str(policy), "--out", str(tmp_path / "evals"), *QUICK]):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 1, result.output
        errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1
        assert re.search(message, errors[0]), errors[0]
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.rglob("*arithmetic*"))


def test_weights_without_digests_go_by_their_hash(policy: Path) -> None:
    change_record(policy, files={})
    (candidate,) = run_candidates(RunDirectory.open(policy.parent.parent), "latest")
    candidate.require_intact()
    assert candidate.subject(load_model(policy), "float32").version == 4
    flip(policy)
    with pytest.raises(ValueError, match="the hash of its weights"):
        candidate.subject(load_model(policy), "float32")


def test_the_record_of_another_version_or_run_is_refused(policy: Path) -> None:
    (candidate,) = run_candidates(RunDirectory.open(policy.parent.parent), "latest")
    change_record(policy, version=7)
    with pytest.raises(ValueError, match=r"the record of version 7 .* where version 4"):
        candidate.require_intact()


def test_a_folder_of_somebody_elses_needs_no_record(policy: Path, tmp_path: Path) -> None:
    shutil.copytree(policy, tmp_path / "v000004")
    (tmp_path / "v000004" / "gmc.json").unlink()
    flip(tmp_path / "v000004")
    model_candidate(str(tmp_path / "v000004")).require_intact()
