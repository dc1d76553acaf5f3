"""Rollouts of other samplers: what is read, what is refused by row and column, and the examples of docs/shards.md at work."""

import json
import math
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

import gmc
from gmc.cli.app import app
from gmc.errors import DataError, UsageError
from gmc.generation.importing import ImportOptions, import_rollouts
from gmc.lab.results_of_run import collect_run
from gmc.live.overview import overview
from gmc.models import load_model
from gmc.scoring.scorer import Scorer
from gmc.store.files import read_jsonl
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.reader import read_shard

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "shards.md").read_text("utf-8")
IMPORTING = PAGE.split("## Rollouts of another sampler")[1]
SMALL = ("--set", "rollout.max_tokens=12")
runner = CliRunner()


def rows(**changes):
    """Two groups of two responses, as JSON objects; changes: of the third row."""
    made = [
        {"uid": uid, "prompt": f"Problem: {uid}\n", "response_token_ids": ids, "logprobs": [-0.5] * len(ids), "reward": reward,
         "policy_version": 3}
        for uid, ids, reward in (("1+1", [20, 21], 1.0), ("1+1", [22], 0.0), ("2+2", [23, 24, 25], -2.5), ("2+2", [], 0.5))
    ]  # fmt: skip
    made[2] |= changes
    return made


def saved(path, made):
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


def run(tmp_path, made, **options):
    return import_rollouts(saved(tmp_path / "t.jsonl", made), tmp_path / "out", ImportOptions(**options))


@pytest.mark.unit
def test_rows_become_shards_whatever_their_order(tmp_path):
    made = rows()
    summary = run(tmp_path, [made[0], made[2], made[1], made[3]])
    assert (summary.files, summary.groups, summary.group_size, summary.first_version) == (1, 2, 2, 3)
    (path,) = summary.folder.glob("*.parquet")
    assert path.name == "b000000-v000003.parquet"
    shard = read_shard(path)
    assert [(row.problem_id, row.group, row.sample, row.reward) for row in shard.rollouts] == [
        ("1+1", 0, 0, 1.0), ("1+1", 0, 1, 0.0), ("2+2", 1, 0, -2.5), ("2+2", 1, 1, 0.5)
    ]  # fmt: skip
    assert shard.rollouts[2].engine_logprobs == [-0.5] * 3
    assert shard.rollouts[2].response_token_ids == [23, 24, 25]
    assert (shard.metadata.logprob_kinds, shard.metadata.rewards, shard.metadata.weights_hash) == (("engine",), (), "")
    outcome = runner.invoke(app, ["shards", "check", str(tmp_path / "out"), "--json"])
    assert json.loads(outcome.stdout)["shards"][0]["policy_versions"] == [3]


@pytest.mark.unit
def test_every_version_has_its_files_and_files_have_at_most_so_many_groups(tmp_path):
    made = [row | {"policy_version": version, "uid": f"{row['uid']}/{version}"} for version in (7, 3) for row in rows()]
    summary = run(tmp_path, made, prompts=1)
    names = sorted(path.name for path in summary.folder.iterdir())
    assert names == [f"b00000{n}-v00000{v}.parquet" for n, v in enumerate((3, 3, 7, 7))]


BAD = [
    ({"reward": "good"}, "line 3, column reward: 'good' is no finite number within ±1e+16"),
    ({"response_mask": [1, 0]}, "line 3, column response_mask: no list of 3 times true or false"),
    ({"response_mask": [1, 2, 0]}, "line 3, column response_mask: no list of 3 times true or false"),
    ({"response_mask": "sampled"}, "line 3, column response_mask: no list of 3 times true or false"),
    ({"reward": None}, "line 3, column reward: nan or nothing is no finite number"),
    ({"logprobs": [-0.5]}, "line 3, column logprobs: 1 values for 3 response tokens"),
    ({"logprobs": [-0.5, 0.5, -1]}, "line 3, column logprobs: a log-probability is finite (in 32 bits) and at most 0"),
    ({"logprobs": [-0.5, -1e308, -1]}, "t.jsonl, line 3, column logprobs: a log-probability is finite (in 32 bits)"),
    ({"logprobs": [-0.5, -(10**400), -1]}, "t.jsonl, line 3, column logprobs: a log-probability is finite"),
    ({"reward": 1e308}, "t.jsonl, line 3, column reward: 1e+308 is no finite number within ±1e+16"),
    ({"reward": 10**400}, "t.jsonl, line 3, column reward: 1"),
    ({"policy_version": 2**63}, "t.jsonl, line 3, column policy_version: 9223372036854775808 is no whole number"),
    ({"policy_version": 1e300}, "t.jsonl, line 3, column policy_version: 1e+300 is no whole number"),
    ({"prompt": "a\ud800"}, r"t.jsonl, line 3, column prompt: '\ud800' at character 1 is half of a character"),
    ({"response": "\udc00"}, r"t.jsonl, line 3, column response: '\udc00' at character 0 is half of a character"),
    ({"uid": "\udc00"}, r"t.jsonl, line 3, column uid: '\udc00' at character 0 is half of a character"),
    ({"logprobs": "none"}, "line 3, column logprobs: no list of numbers"),
    ({"response_token_ids": [1, 2, 99999]}, "line 3, column response_token_ids: no list of token ids below"),
    ({"response_token_ids": [1.5, 2, 3]}, "line 3, column response_token_ids: no list of token ids"),
    ({"policy_version": 4}, "line 4, column policy_version: 3, and its group, which begins in line 3, has 4"),
    ({"policy_version": -1}, "line 3, column policy_version: -1 is no whole number"),
    ({"prompt": "Problem: 9\n"}, "line 4, column prompt: not the prompt of its group"),
    ({"finish_reason": "eos"}, "line 3, column finish_reason: 'eos' is not"),
    ({"uid": "1+1", "prompt": "Problem: 1+1\n"}, "column uid: its group has"),
    (
        {"response_token_ids": [1] * 5000, "logprobs": [-0.5] * 5000},
        "line 3, column response: 7 tokens of prompt and 5000 of response are more than the 256 of model embedded",
    ),
]


@pytest.mark.unit
@pytest.mark.parametrize(("mask", "expected"), [([True, False, True], [True, False, True]), ([1, 1, 1], None), (None, None)])
def test_a_mask_says_which_tokens_were_sampled(tmp_path, mask, expected):
    summary = run(tmp_path, rows(response_mask=mask))
    (path,) = summary.folder.glob("*.parquet")
    assert [row.response_mask for row in read_shard(path).rollouts if len(row.response_token_ids) == 3] == [expected]


@pytest.mark.unit
@pytest.mark.parametrize(("change", "words"), BAD, ids=[words for _, words in BAD])
def test_a_bad_value_is_named_by_row_and_column_and_nothing_is_written(tmp_path, change, words):
    with pytest.raises(DataError, match=re.escape(words)) as caught:
        run(tmp_path, rows(**change))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.unit
@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_no_log_probs_are_those_of_such_a_temperature(temperature):
    with pytest.raises(UsageError, match=r"give the number from 0\.001 to 1000 at which the rollouts were sampled"):
        ImportOptions(temperature=temperature)


@pytest.mark.unit
def test_what_the_table_lacks_is_said_with_the_cure(tmp_path):
    def without(name):
        return [{key: value for key, value in row.items() if key != name} for row in rows()]

    with pytest.raises(UsageError, match="let --score compute them"):
        run(tmp_path, without("logprobs"))
    with pytest.raises(UsageError, match=r"no column for reward .*name it by --column reward=ITS_NAME"):
        run(tmp_path, without("reward"))
    with pytest.raises(UsageError, match="no column total"):
        run(tmp_path, rows(), columns=(("reward", "total"),))
    with pytest.raises(UsageError, match="there is no such thing"):
        run(tmp_path, rows(), columns=(("prize", "total"),))
    with pytest.raises(UsageError, match="import one version at a time"):
        run(tmp_path, [row | {"policy_version": 3 + (row["uid"] == "2+2")} for row in rows()], score=True)
    with pytest.raises(UsageError, match="no such file"):
        import_rollouts(tmp_path / "none.jsonl", tmp_path / "out", ImportOptions())
    run(tmp_path, rows())
    with pytest.raises(UsageError, match="choose another --out"):
        run(tmp_path, rows())


@pytest.mark.unit
def test_scores_are_those_of_the_model(tmp_path):
    made = [{key: value for key, value in row.items() if key != "logprobs"} for row in rows()]
    (path,) = run(tmp_path, made, score=True).folder.glob("*.parquet")
    shard = read_shard(path)
    first = shard.rollouts[0]
    alone = Scorer(load_model("embedded")).score([first.prompt_token_ids], [[first.response_token_ids]])
    assert first.trainer_logprobs == pytest.approx(alone.logp_BT[0, :2].tolist(), abs=1e-5)
    assert shard.metadata.logprob_kinds == ("trainer",)


@pytest.mark.train
def test_the_delay_of_imported_rollouts_counts_from_the_start_version(tmp_path):
    made = [row | {"policy_version": version, "uid": f"{row['uid']}/{version}"} for version in (3, 7) for row in rows()]
    run(tmp_path, made)

    def train(name, **flags):
        return gmc.train(tmp_path / name, rollouts=tmp_path / "out", delay="shards", updates=2, prompts=2, group_size=2,
                         logprobs="engine", max_tokens=12, **flags)  # fmt: skip

    train("run", start_version=9, settings={"train.checkpoint_every": 1})
    assert [one["delay/mean"] for one in read_jsonl(tmp_path / "run" / "metrics.jsonl")] == [6.0, 3.0]
    with pytest.raises(UsageError, match=r"would use batch 1, which a later policy generated \(3 ahead\)"):
        train("third", start_version=3)
    with pytest.raises(UsageError, match="only --delay shards"):
        gmc.train(tmp_path / "fourth", delay=0, start_version=3)
    again = train("run", start_version=9, resume=True)
    assert again.finished
    assert len(list((tmp_path / "run" / "rollouts").glob("*.parquet"))) == 2


@pytest.mark.train
@pytest.mark.parametrize("known", [True, False])
def test_without_a_start_version_delays_are_unknown_and_a_rule_that_needs_them_is_refused(tmp_path, known):
    made = [row if known else {key: value for key, value in row.items() if key != "policy_version"} for row in rows()]
    summary = run(tmp_path, made)
    assert (summary.first_version, summary.last_version) == ((3, 3) if known else (None, None))

    def train(name, **flags):
        flags = {"logprobs": "engine", "max_tokens": 12, "updates": 1, **flags}
        return gmc.train(tmp_path / name, rollouts=tmp_path / "out", delay="shards", prompts=2, group_size=2, **flags)

    train("run")
    (logged,) = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert not [name for name in logged if name.startswith("delay/")]
    assert logged["ratio/log_rho_std"] > 0
    assert overview(RunDirectory.open(tmp_path / "run"))["delays"] is None
    assert train("run", resume=True).version_0_share is None
    with pytest.raises(UsageError, match="estimator a3po: it needs the delay of every rollout"):
        train("other", estimator="a3po")
    if known:
        train("third", estimator="a3po", start_version=5)
        assert read_jsonl(tmp_path / "third" / "metrics.jsonl")[0]["delay/mean"] == 2.0
        assert overview(RunDirectory.open(tmp_path / "third"))["delays"]["mean"] == 2.0
    else:
        with pytest.raises(UsageError, match="which version sampled it was not said when it was imported"):
            train("third", start_version=5)


@pytest.mark.train
def test_every_command_copes_with_a_run_whose_delays_are_not_known(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "good.jsonl", [{key: value for key, value in row.items() if key != "policy_version"} for row in rows()])
    where = ["--run", "R", "--rollouts", "S", "--delay", "shards", "--group-size", "2", "--prompts", "1", "--updates", "2"]
    said = {}
    for words in (
        ["shards", "import", "good.jsonl", "--out", "S", "--model", "embedded"],
        ["train", *where, "--logprobs", "engine", *SMALL],
        ["status", "--run", "R"],
        ["runs", "."],
        ["eval", "--run", "R", "--base", "--limit", "2", "--n", "1", "--max-tokens", "8"],
        ["export", "R", "--to", "E"],
    ):
        outcome = runner.invoke(app, words, catch_exceptions=False)
        assert outcome.exit_code == 0, outcome.stderr
        said[words[0]] = outcome.output
    assert re.search(r"reward \S+  ESS", said["train"])
    assert re.search(r"delays +not known", said["status"])
    found = collect_run(tmp_path / "R", clip_norm=1.0)
    assert math.isnan(found.training["delay_mean"])
    assert found.windows["delay/mean"] == [None, None]
    assert found.training["reward_last"] == 0.25 * (1.0 - 2.5 + 0.5)


@pytest.mark.train
def test_the_pandas_example_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", IMPORTING, re.DOTALL)
    exec(compile(code, "docs/shards.md", "exec"), {})
    (logged,) = read_jsonl(tmp_path / "runs" / "on-theirs" / "metrics.jsonl")
    assert logged["delay/mean"] == 0
    assert logged["reward/mean"] == (1 + 0 + 0.5 + 0) / 4


def texts():
    return [("Problem: What is $2+2$?\nSolution:\n", text) for text in (r"\boxed{4}", r"\boxed{5}")] + [
        ("Problem: What is $3+3$?\nSolution:\n", text) for text in (r"\boxed{6}", "7")
    ]


def trl_dump(path):
    pd.DataFrame(
        {
            "step": [1] * 4,
            "prompt": [prompt for prompt, _ in texts()],
            "completion": [text for _, text in texts()],
            "accuracy_reward": [1.0, 0.0, 1.0, 0.0],
            "advantage": [0.7, -0.7, 0.7, -0.7],
        }
    ).to_parquet(path)


def verl_dump(path):
    lines = [
        {"input": prompt, "output": text, "gts": "4", "score": float(number % 2 == 0), "step": 1}
        for number, (prompt, text) in enumerate(texts())
    ]
    saved(path, lines)


@pytest.mark.train
@pytest.mark.parametrize(
    ("heading", "file", "dump"),
    [("From TRL's completions", "completions_00000.parquet", trl_dump), ("From verl's rollout dump", "1.jsonl", verl_dump)],
)
def test_the_commands_of_the_page_run_on_files_of_that_form(tmp_path, monkeypatch, heading, file, dump):
    monkeypatch.chdir(tmp_path)
    dump(tmp_path / file)
    block = re.findall(r"```bash\n(.*?)```", IMPORTING.split(heading)[1], re.DOTALL)[0]
    for line in block.strip().splitlines():
        words = shlex.split(line)
        more = SMALL if words[1] == "train" else ()
        outcome = runner.invoke(app, [*words[1:], *more], catch_exceptions=False)
        assert outcome.exit_code == 0, outcome.stderr
    (logged,) = read_jsonl(next((tmp_path / "runs").glob("*/metrics.jsonl")))
    assert logged["reward/mean"] == 0.5
    assert logged["ratio/log_rho_max"] == pytest.approx(0, abs=1e-4)  # scored by the policy that trains
