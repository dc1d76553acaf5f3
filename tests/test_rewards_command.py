"""`gmc rewards`: list, show, try and new."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from gmc.cli.app import app

runner = CliRunner()


def gmc(*arguments):
    return runner.invoke(app, ["rewards", *map(str, arguments)], catch_exceptions=False, env={"COLUMNS": "120", "TERM": "dumb"})


@pytest.mark.unit
def test_the_list_names_every_reward_with_its_settings():
    found = {reward["name"]: reward for reward in json.loads(gmc("--json").stdout)["rewards"]}
    assert set(found) >= {"math", "exact", "regex", "length", "code"}
    assert found["math"]["binary"]
    assert not found["length"]["binary"]
    assert "max_tokens, cache" in gmc("list").stdout


@pytest.mark.unit
def test_a_reward_is_shown_with_its_settings_and_an_unknown_one_refused():
    page = gmc("show", "length").stdout
    assert "none, must be given" in page
    assert "--reward 'length(max_tokens=…, cache=…)=WEIGHT'" in page
    assert json.loads(gmc("show", "exact", "--json").stdout)["settings"][0]["default"] == "false"
    refused = gmc("show", "exakt")
    assert refused.exit_code == 2
    assert "Did you mean exact?" in refused.stderr


@pytest.mark.process
def test_a_trial_shows_what_goes_in_and_what_comes_out(tmp_path):
    (tmp_path / "r.py").write_text(
        "def f(completions, log_extra, log_metric, **rest):\n    log_extra('size', list(map(len, completions)))\n"
        "    log_metric('count', len(completions))\n    return [float(len(text)) for text in completions]\n"
    )
    (tmp_path / "p.jsonl").write_text('{"problem": "Say 4", "answer": 4, "level": 7}\n')
    asked = (
        "try",
        "exact",
        f"{tmp_path}/r.py:f=0.5",
        "--problems",
        tmp_path / "p.jsonl",
        "--response",
        "4",
        "--response",
        "a\x1b[2J",
    )
    record = json.loads(gmc(*asked, "--json").stdout)
    assert [one["reward"] for one in record["responses"]] == [1.5, 2.5]
    assert record["responses"][0]["parts"] == {"exact": 1.0, "f": 1.0}
    assert record["fields"] == {"problem": "Say 4", "answer": "4", "level": "7"}
    assert record["metrics"] == {"f/count": 2.0}
    page = gmc(*asked).stdout
    assert "\x1b[2J" not in page
    assert r"a\x1b[2J" in page
    assert "level: int" in page
    sampled = json.loads(gmc("try", "exact", "--count", 2, "--set", "rollout.max_tokens=5", "--json").stdout)
    assert len(sampled["responses"]) == 2
    assert gmc("try", "exact", "--problem", 99999).exit_code == 2


@pytest.mark.process
def test_a_new_reward_passes_its_own_test(tmp_path):
    assert gmc("new", "my-own", "--out", tmp_path).exit_code == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests"],
        cwd=tmp_path / "gmc-my-own",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    assert gmc("new", "math", "--out", tmp_path).exit_code == 2
