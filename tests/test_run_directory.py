"""The run directory: identity, refusals, the lock, settings."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gmc import __version__
from gmc.config.settings import settings_tree
from gmc.errors import DataError, GmcError, UsageError
from gmc.resolving.resolve import resolve_settings
from gmc.store.run_directory import RunDirectory, checkpoint_name, policy_name, rollout_name


def new_run(
    path: Path, *, resume: bool = False, overwrite: bool = False, model: str = "embedded", seed: int = 0
) -> RunDirectory:
    return RunDirectory.for_training(path, model=model, seed=seed, resume=resume, overwrite=overwrite)


def mark_trained(run: RunDirectory) -> None:
    run.metrics.write_text('{"update": 0}\n')


@pytest.mark.unit
def test_create_writes_run_toml_and_open_reads_it(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "deep" / "run", model="a/b", seed=7)
    content = tomllib.loads((run.path / "run.toml").read_text())
    assert content.pop("format") == 2
    assert content == {"run_id": run.run_id, "model": "a/b", "seed": 7, "weights_hash": "", "gmc_version": __version__}
    assert RunDirectory.open(run.path).record == run.record
    other = RunDirectory.create(tmp_path / "other", model="a/b", seed=7)
    assert other.run_id != run.run_id
    assert len(run.run_id) >= 16


@pytest.mark.train
def test_every_path_is_where_the_documentation_says(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, model="m", seed=0)
    found = {
        str(path.relative_to(tmp_path))
        for path in (
            run.rollouts / rollout_name(123, 100),
            run.policies / policy_name(100),
            run.checkpoints / checkpoint_name(100),
            run.settings("train"),
            run.metrics,
            run.used,
            run.claims,
            run.followers,
            run.evals,
            run.lock_file,
        )
    }
    assert found == {
        "rollouts/b000123-v000100.parquet",
        "policies/v000100",
        "checkpoints/u000100",
        "settings/train.toml",
        "metrics.jsonl",
        "used.jsonl",
        "claims",
        "followers",
        "evals",
        "lock",
    }


@pytest.mark.unit
def test_a_run_is_not_created_over_another(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, model="m", seed=0)
    with pytest.raises(UsageError, match=r"holds a run already. Use --resume to go on, --overwrite"):
        RunDirectory.create(tmp_path, model="m", seed=0)
    assert RunDirectory.open(tmp_path).run_id == run.run_id


@pytest.mark.unit
def test_overwrite_deletes_everything_and_takes_a_new_id(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, model="m", seed=0)
    mark_trained(run)
    (run.rollouts / "aside-1").mkdir(parents=True)
    (run.rollouts / rollout_name(0, 0)).touch()
    again = RunDirectory.create(tmp_path, model="n", seed=1, overwrite=True)
    assert again.run_id != run.run_id
    assert {path.name for path in tmp_path.iterdir()} == {"run.toml", "lock"}


@pytest.mark.unit
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for make in (
        lambda: RunDirectory.create(tmp_path, model="m", seed=0, overwrite=overwrite),
        lambda: new_run(tmp_path, overwrite=overwrite),
    ):
        with pytest.raises(UsageError, match="not a run of gmc"):
            make()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(UsageError, match="is a file"):
        RunDirectory.create(tmp_path / "thesis.tex", model="m", seed=0, overwrite=overwrite)


@pytest.mark.process
def test_a_start_that_was_killed_does_not_spoil_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "run"
    script = (
        "import sys; from pathlib import Path; from gmc.store.files import temporary_name; "
        "temporary_name(Path(sys.argv[1])).touch()"
    )
    path.mkdir()
    subprocess.run([sys.executable, "-c", script, str(path / "run.toml")], check=True)
    (path / "lock").touch()
    RunDirectory.create(path, model="m", seed=0)
    assert {entry.name for entry in path.iterdir()} == {"run.toml", "lock"}


@pytest.mark.unit
def test_overwriting_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    run = RunDirectory.create(tmp_path / "run", model="m", seed=0)
    run.rollouts.symlink_to(tmp_path / "precious", target_is_directory=True)
    RunDirectory.create(tmp_path / "run", model="m", seed=0, overwrite=True)
    assert (tmp_path / "precious" / "file").exists()


@pytest.mark.unit
def test_open_refuses(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run here"):
        RunDirectory.open(tmp_path)
    (tmp_path / "run.toml").write_text("run_id = ")
    with pytest.raises(DataError, match=r"run.toml: damaged"):
        RunDirectory.open(tmp_path)
    (tmp_path / "run.toml").write_text('run_id = "a"\n')
    with pytest.raises(DataError, match=r"run.toml: damaged"):
        RunDirectory.open(tmp_path)


@pytest.mark.unit
def test_training_after_rollouts_needs_no_flag(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, model="embedded", seed=0)
    run.rollouts.mkdir()
    (run.rollouts / rollout_name(0, 0)).touch()
    run.save_settings("rollout", resolve_settings())
    assert new_run(tmp_path).run_id == run.run_id


@pytest.mark.unit
@pytest.mark.parametrize("trace", ["metrics", "checkpoint"])
def test_training_a_trained_run_needs_a_flag(tmp_path: Path, trace: str) -> None:
    run = new_run(tmp_path)
    if trace == "metrics":
        mark_trained(run)
    else:
        (run.checkpoints / checkpoint_name(5)).mkdir(parents=True)
    with pytest.raises(UsageError, match="has trained already"):
        new_run(tmp_path)
    assert new_run(tmp_path, resume=True).run_id == run.run_id
    assert new_run(tmp_path, overwrite=True).run_id != run.run_id


@pytest.mark.unit
def test_resume_needs_a_run_and_excludes_overwrite(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run here"):
        new_run(tmp_path / "new", resume=True)
    assert not (tmp_path / "new").exists()
    with pytest.raises(UsageError, match="give one of them"):
        new_run(tmp_path, resume=True, overwrite=True)


@pytest.mark.unit
def test_resume_with_another_model_or_seed_is_refused(tmp_path: Path) -> None:
    (new_run(tmp_path).rollouts / "something").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"started with model 'embedded', not 'other'\. Give --model embedded"):
        new_run(tmp_path, model="other")
    with pytest.raises(UsageError, match="started with seed 0, not 1"):
        new_run(tmp_path, seed=1, resume=True)


@pytest.mark.unit
def test_the_initial_weights_are_bound_once(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    run.bind_weights("a" * 64)
    again = RunDirectory.open(tmp_path)
    assert again.record.weights_hash == "a" * 64
    assert again.run_id == run.run_id
    again.bind_weights("a" * 64)
    with pytest.raises(GmcError, match="started from weights aaaaaaaaaaaa, and 'embedded' now has bbbbbbbbbbbb"):
        again.bind_weights("b" * 64)


HOLD = """
import sys
from pathlib import Path
from gmc.resolving.resolve import resolve_settings
from gmc.store.run_directory import RunDirectory
with RunDirectory.open(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.process
def test_a_second_trainer_is_refused_naming_run_and_process(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        for _ in range(2):
            with pytest.raises(GmcError) as caught, run.lock():
                pass
            assert str(tmp_path) in str(caught.value)
            assert f"process {holder.pid} on " in str(caught.value)
        with pytest.raises(GmcError, match="is working on this run"):
            RunDirectory.create(tmp_path, model="m", seed=0, overwrite=True)
        assert RunDirectory.open(tmp_path).run_id == run.run_id
    finally:
        holder.kill()
        holder.wait()
    with run.lock():  # a killed holder does not block the next
        assert f"process {os.getpid()} " in run.lock_file.read_text()


@pytest.mark.unit
def test_the_lock_is_released_on_errors(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    with pytest.raises(RuntimeError, match="boom"), run.lock():
        raise RuntimeError("boom")
    with run.lock(), pytest.raises(GmcError), RunDirectory.open(tmp_path).lock():
        pass


@pytest.mark.train
def test_settings_are_saved_with_versions(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    settings = resolve_settings(flags={"delay": "256"})
    run.save_settings("train", settings)
    content = tomllib.loads((tmp_path / "settings" / "train.toml").read_text())
    assert content["settings"] == settings_tree(settings)
    assert content["origins"] == settings.origins
    assert content["hash"] == settings.hash
    assert content["versions"]["gmc"] == __version__
    assert {"python", "torch", "transformers", "pyarrow"} <= set(content["versions"])
    run.save_settings("train", resolve_settings(flags={"delay": "0"}))
    assert tomllib.loads(run.settings("train").read_text())["settings"]["delay"] == "0"
    assert json.loads(json.dumps(content)) == content


@pytest.mark.unit
def test_a_run_that_a_failed_command_left_without_results_counts_as_new(tmp_path):
    path = tmp_path / "run"
    first = new_run(path)
    first.save_settings("rollout", resolve_settings())
    first.bind_weights("w" * 64)
    first.rollouts.mkdir()
    second = new_run(path, model="other", seed=3)
    assert (second.record.model, second.record.seed, second.record.weights_hash) == ("other", 3, "")
    (path / "rollouts").mkdir(exist_ok=True)
    (path / "rollouts" / "b000000-v000000.parquet").touch()
    with pytest.raises(UsageError, match="started with model"):
        new_run(path)


@pytest.mark.unit
def test_a_run_that_somebody_is_starting_is_left_alone(tmp_path):
    path = tmp_path / "run"
    first = new_run(path)
    with first.lock(), pytest.raises(GmcError, match="another process"):
        new_run(path, model="other")
    assert RunDirectory.open(path).record == first.record
