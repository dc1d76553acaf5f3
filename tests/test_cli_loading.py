"""What a command says and refuses before the large libraries are there."""

import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants

from gmc.cli import loading, output
from gmc.errors import DataError, UsageError
from gmc.loading.named import require_model
from gmc.problems.load import require_source

RUN_AND_LIST = """
import json, sys
from gmc.__main__ import main
try:
    main()
except SystemExit as ended:
    print(json.dumps({"code": ended.code, "modules": sorted({"torch", "transformers", "datasets"} & sys.modules.keys())}))
"""


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No network, and a cache with one model and one data set."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    for name in ("models--Qwen--Qwen3-0.6B", "datasets--openai--gsm8k"):
        (tmp_path / name / "snapshots" / "0f").mkdir(parents=True)
    (tmp_path / "datasets" / "someone___sums").mkdir(parents=True)
    return tmp_path


@pytest.mark.unit
def test_without_network_only_what_is_in_the_cache_is_a_model(offline):
    for known in ("embedded", "Qwen/Qwen3-0.6B", str(offline)):
        require_model(known)
    with pytest.raises(UsageError, match=r"neither a folder here nor in the cache.*did you mean Qwen/Qwen3-0\.6B\?"):
        require_model("Qwen/Qwen3-0.6")
    with pytest.raises(UsageError, match="no such folder"):
        require_model("./nothing")


@pytest.mark.unit
def test_without_network_only_what_is_in_a_cache_is_a_data_set(offline):
    for known in ("arithmetic", "arithmetic:eval", "openai/gsm8k", "openai/gsm8k:main", "someone/sums", str(offline)):
        require_source(known)
    with pytest.raises(DataError, match="the hub cannot be reached, and it is not in the cache"):
        require_source("openai/gsm8")
    for nothing in ("none.jsonl", "./none", "none", " "):
        with pytest.raises(UsageError):
            require_source(nothing)


@pytest.mark.unit
def test_a_large_import_is_announced_once_and_not_when_quiet(tmp_path, monkeypatch, capsys):
    (tmp_path / "a_large_library.py").write_text("raise ImportError")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(loading, "ANNOUNCED", ("a_large_library",))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "_Announcer"]
    loading.announce_imports()
    loading.announce_imports()
    said = []
    monkeypatch.setattr(loading, "write_line", said.append)
    for _ in range(2):
        with pytest.raises(ImportError):
            __import__("a_large_library")
    assert said == ["loading a_large_library …"]
    monkeypatch.setattr(output, "_level", output.QUIET)
    output.write_line("loading torch …")
    assert capsys.readouterr() == ("", "")


def command(*arguments, folder, **environment):
    return subprocess.run(
        [sys.executable, "-c", RUN_AND_LIST, *map(str, arguments)],
        cwd=folder, env={**os.environ, "HF_HUB_OFFLINE": "1", **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("train", "--model", "nobody/nothing"), 2, "neither a folder here nor in the cache"),
        (("rollout", "--problems", "nobody/nothing"), 1, "could not load this data set"),
        (("eval", "--model", "nobody/nothing"), 2, "neither a folder here nor in the cache"),
    ],
)
def test_a_mistyped_name_is_refused_before_torch_is_loaded_and_leaves_nothing(tmp_path, arguments, code, words):
    result = command(*arguments, folder=tmp_path, HF_HOME=str(tmp_path / "hf"))
    assert json.loads(result.stdout) == {"code": code, "modules": []}
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
    assert not (tmp_path / "runs").exists()


MISTAKES = """
train --estimator gmcc|no estimator is named 'gmcc'. Did you mean gmc?
train --reward mth|no reward is named 'mth'. Did you mean math?
train --reward nofile.py:short|nofile.py: No such file
train --environment retri|no environment is named 'retri'
train --engine vlm|no engine is named 'vlm'
train --problems other.parquet|no question field
train --problems broken.parquet|not a readable Parquet file
train --run nothing --resume|no run here
rollout --estimator gmc|no such option
rollout --set estimator.name=gmcc|no estimator is named 'gmcc'
eval --model embedded --bench mathh|did you mean math500?
eval --model embedded --bench gsm8k|openai/gsm8k:main: could not load this data set
eval --model embedded --bench gsm8k --bench-data .|no file for gsm8k
eval --model embedded --problems other.parquet|no question field
eval --run nothing|no run here
eval arms nothing|no run here
eval compare a b|a.json: no such result
export nothing --to there|no run here
shards import nothing.parquet --out there|no such file
shards import other.parquet --out there|no column for prompt_token_ids or prompt
estimators show gmcc|no estimator is named
estimators compare nothing --model embedded|nothing: no such folder
lab exact --estimator gmcc|no estimator is named
lab exact toy.toml|gmc lab toy toy.toml takes it
lab toy toy.toml|no estimator is named 'gmcc'
lab toy --delay fixd:3|no delay is named 'fixd'. Did you mean fixed?
lab toy --plot plot.jpeg|plot.jpeg
lab step --estimator gmcc|no estimator is named
lab sweep nothing.toml|no such file
lab report nothing|nothing: no such file or folder
simulate-delay --delay fixd:3 --lengths lognormal:9:1|no delay is named 'fixd'
"""
RUN_ALL = """
import json, shlex, sys
from typer.testing import CliRunner
from gmc.cli.app import app
for line in sys.argv[1].strip().splitlines():
    result = CliRunner().invoke(app, shlex.split(line.partition("|")[0]))
    modules = sorted({"torch", "transformers", "datasets"} & sys.modules.keys())
    print(json.dumps([line, result.exit_code, result.stderr.strip().splitlines()[-1], modules]))
"""


@pytest.mark.process
def test_what_is_mistyped_is_refused_before_torch_is_loaded(tmp_path):
    pq.write_table(pa.table({"foo": ["a"], "bar": ["b"]}), tmp_path / "other.parquet")
    (tmp_path / "broken.parquet").write_text("text")
    (tmp_path / "toy.toml").write_text("[[grid]]\nupdates = 60\nrules = {gmcc = {}}\n")
    before = sorted(tmp_path.iterdir())
    environment = {name: value for name, value in os.environ.items() if name != "GMC_BENCH_DATA"}
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, MISTAKES],
        cwd=tmp_path, env={**environment, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(MISTAKES.strip().splitlines())
    for line, code, said, modules in answers:
        assert (code in (1, 2), modules) == (True, []), (line, code, said)
        assert line.partition("|")[2] in said
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.process
def test_the_import_of_torch_is_said_on_stderr_alone(tmp_path):
    result = command("train", "--dry-run", "--json", folder=tmp_path)
    first, second = result.stdout.splitlines()
    assert json.loads(first)["delay"] == "64"
    assert "torch" in json.loads(second)["modules"]
    assert result.stderr.rstrip().endswith("loading torch …")
    assert result.stderr.count("\n") == 1
