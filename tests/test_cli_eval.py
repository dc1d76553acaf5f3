"""`gmc eval` from the command line, on the embedded model."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.evaluation.results import PartialResult
from gmc.models import embedded_model_path, load_model
from gmc.store.policies import publish_policy
from gmc.store.run_directory import RunDirectory

pytestmark = pytest.mark.unit

QUICK = ("--limit", "4", "--n", "2", "--max-tokens", "32")


def gmc(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["eval", *arguments])


def gmc_json(*arguments: str) -> dict[str, Any]:
    result = gmc(*arguments, "--json")
    assert result.exit_code == 0, result.output
    record: dict[str, Any] = json.loads(result.stdout)
    return record


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with policies 0 and 5 (5 is the base with its weights scaled down, so that it answers differently)."""
    path = tmp_path_factory.mktemp("runs") / "default"
    run = RunDirectory.create(path, model="embedded", seed=0)
    model = load_model("embedded")
    publish_policy(model, run.policies, 0, run.run_id)
    for parameter in model.network.parameters():
        parameter.data.mul_(0.9)
    publish_policy(model, run.policies, 5, run.run_id)
    return path


@pytest.fixture
def here(tmp_path: Path, finished_run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(finished_run, tmp_path / "runs" / "default")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GMC_BENCH_DATA", raising=False)
    return tmp_path


def test_without_flags_it_scores_the_newest_policy_of_the_default_run(here: Path) -> None:
    result = gmc(*QUICK)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    files = sorted(path.name for path in Path("runs/default/evals").iterdir())
    assert [name.rpartition("-")[0] for name in files] == ["arithmetic-v000005"] * 2
    for text in ("arithmetic: 4 problems", "95 % interval", "avg@2", "greedy", "only the first 4 of 500"):
        assert text in result.stderr


def test_base_stands_beside_the_trained_policy(here: Path) -> None:
    record = gmc_json(*QUICK, "--base")
    assert [result["model"]["label"] for result in record["results"]] == ["base", "v000005"]
    assert record["results"][0]["model"]["version"] == 0
    (comparison,) = record["comparisons"]
    assert set(comparison["scores"]) == {"avg@2", "greedy"}


def test_all_policies_make_a_curve(here: Path) -> None:
    record = gmc_json(*QUICK, "--policy", "all", "--no-greedy")
    (curve,) = record["curves"]
    points = json.loads(Path(curve["points"]).read_text())["points"]
    assert [point["version"] for point in points] == [0, 5]
    assert Path(curve["plot"]).stat().st_size > 1000


def test_model_of_a_folder_on_a_problem_file(here: Path) -> None:
    Path("mine.csv").write_text("Q,A\nWhat is $1+1$?,2\nWhat is $2+2$?,4\n")
    arguments = (
        "--model",
        str(embedded_model_path()),
        "--problems",
        "mine.csv",
        "--question-field",
        "q",
        "--answer-field",
        "a",
    )
    record = gmc_json(*arguments, "--template", "arithmetic-v1", "--n", "4", "--pass-k", "1,4", "--temperature", "0.5")
    (result,) = record["results"]
    assert result["problems"]["count"] == 2
    assert set(result["scores"]) == {"avg@4", "pass@1", "pass@4", "maj@4", "greedy"}
    assert result["spec"]["temperature"] == 0.5
    assert result["file"].startswith("evals/mine-model-")


def test_a_model_with_one_weight_that_is_no_number_has_no_score(here: Path) -> None:
    shutil.copytree(embedded_model_path(), "damaged")
    weights = load_file("damaged/model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][3, 4] = float("nan")
    save_file(weights, "damaged/model.safetensors", metadata={"format": "pt"})
    result = gmc("--model", "damaged", *QUICK)
    assert (result.exit_code, result.stdout, result.stderr.strip().count("\n")) == (1, "", 0)
    assert "damaged: tensor model.layers.1.mlp.up_proj.weight holds values that are no numbers" in result.stderr
    assert not Path("evals").exists()


def test_a_run_that_may_only_be_read_can_be_asked_and_evaluated(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is even tried to be written there. (The tests may run as root, whom no permission stops.)"""
    run = Path("runs/default")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)

    def everything() -> dict[Path, tuple[int, int]]:
        found = {path: path.stat() for path in (run, *run.rglob("*"))}
        return {path: (stat.st_mtime_ns, stat.st_size) for path, stat in found.items()}

    before = everything()
    assert gmc_json(*QUICK, "--no-greedy", "--out", "elsewhere")["results"][0]["file"].startswith("elsewhere")
    assert CliRunner().invoke(app, ["status", str(run)]).exit_code == 0
    assert everything() == before


def test_resume_and_compare(here: Path) -> None:
    first = gmc_json(*QUICK)["results"][0]["file"]
    assert gmc_json(*QUICK, "--resume")["results"][0]["file"] == first
    second = gmc_json(*QUICK, "--seed", "1")["results"][0]["file"]
    record = gmc_json("compare", first, second)
    assert record["differing_settings"] == ["seed 0 → 1"]
    shown = gmc("compare", first, second)
    assert shown.exit_code == 0
    assert shown.stdout == ""
    assert "second minus first" in shown.stderr


def test_interrupted_evaluation_says_how_to_go_on(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gmc_json("--limit", "4", "--n", "2", "--out", "whole")["results"][0]
    write_part, written = PartialResult.write, []

    def stop(self: PartialResult, chunk: int, samples: list[Any]) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(chunk)
        write_part(self, chunk, samples)

    monkeypatch.setattr(PartialResult, "write", stop)
    arguments = ("--limit", "4", "--n", "2", "--batch-sequences", "4")
    stopped = gmc(*arguments)
    assert stopped.exit_code != 0
    assert "with --resume to go on" in stopped.stderr
    monkeypatch.undo()
    monkeypatch.chdir(here)
    resumed = gmc_json(*arguments, "--resume")["results"][0]
    assert resumed["problems"] == whole["problems"]
    assert resumed["scores"].keys() == whole["scores"].keys()
    settings = (here / "runs" / "default" / "settings" / "eval.toml").read_text()
    assert "limit = 4" in settings


def test_dry_run_prints_settings_and_makes_nothing(here: Path) -> None:
    result = gmc("--bench", "math500,aime24", "--bench", "gsm8k", "--dry-run")
    assert 'benchmarks = ["math500", "aime24", "gsm8k"]' in " ".join(result.stdout.split()).replace("[ ", "[").replace(
        ", ]", "]"
    )
    assert not Path("runs/default/evals").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--run", "nothing"), 2, "no run here"),
        (("--bench", "math"), 2, "--bench math: unknown"),
        (("--policy", "3"), 2, "has the versions 0, 5"),
        (("--model", "embedded", "--base"), 2, "--base and --policy belong to a run"),
        (("--model", "embedded", "--run", "runs/default"), 2, "exclude each other"),
        (("--model", "./missing"), 2, "./missing"),
        (("--bench", "math500", "--bench-data", "."), 2, "no file for math500"),
        (("--pass-k", "a"), 2, "--pass-k a"),
        (("--pass-k", "8", "--n", "4"), 2, "needs --n 8"),
        (("--temperature", "0"), 2, "every sample would be the same"),
        (("--template", "x"), 2, "no such template"),
        (("--problems", "missing.jsonl"), 2, "no such file"),
        (("--max-tokens", "9999", "--limit", "2"), 2, "use --max-tokens"),
        (("compare", "a", "b"), 2, "a.json: no such result"),
    ],
)
def test_bad_input_gets_one_line_and_a_code(here: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    result = gmc(*arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""
