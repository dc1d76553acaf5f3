"""`gmc simulate-delay` as a user calls it."""

import io
import json
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from shard_samples import write_sample
from typer.testing import CliRunner

from gmc.cli import simulate_run
from gmc.cli.app import app
from gmc.delays.schedule import read_schedule
from gmc.store.run_directory import RunDirectory

pytestmark = pytest.mark.unit

LENGTHS = ["--lengths", "lognormal:40:0.6"]
CLUSTER = [*LENGTHS, "--slots", "4", "--tokens-per-second", "10", "--update-seconds", "5", "--updates", "30"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def command(*arguments):
    return CliRunner().invoke(app, ["simulate-delay", *map(str, arguments)])


def record(*arguments):
    result = command(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    assert len(result.stdout.splitlines()) == 1
    return json.loads(result.stdout)


def refusal(*arguments):
    result = command(*arguments)
    assert result.exit_code in (1, 2), result.output
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1 or "Usage:" in result.stderr or "╭" in result.stderr, result.stderr
    return result.stderr


def make_run(batches=((0, 0), (1, 0), (2, 1)), used=None):
    """A run whose shards hold 2 groups of 3 responses."""
    run = RunDirectory.create(Path("runs/x"), model="embedded", seed=0)
    for batch, version in batches:
        write_sample(run.rollouts, batch, version)
    if used is not None:
        run.used.write_text("".join(json.dumps({"update": n, "groups": groups}) + "\n" for n, groups in enumerate(used)))
    return run


def test_a_clock_reports_delays_and_writes_a_schedule_to_train_on():
    small = (*LENGTHS, "--delay", "length:20", "--updates", "50", "--prompts", "4", "--group-size", "3")
    found = record(*small)
    assert found["schedule"] is None
    assert not [*Path().iterdir()], "nobody asked for a file"
    assert "--schedule FILE" in command(*small).stderr
    found = record(*small, "--schedule", "schedule.parquet")
    rows, prompts = read_schedule(Path("schedule.parquet"))
    assert (len(rows), prompts) == (200, 4)
    assert found["delay"]["mean"] == pytest.approx(sum(row.update - row.policy_version for row in rows) / 200)
    assert found["delay"]["responses"] == 600
    assert found["schedule"] == "schedule.parquet"
    assert found["theory"]["constants"] == "set to 1"
    again = record(*LENGTHS, "--delay", "schedule:schedule.parquet", "--prompts", "4", "--group-size", "3")
    assert again["delay"] == found["delay"]


def test_people_read_on_stderr_and_machines_on_stdout():
    plain = command(*LENGTHS, "--delay", "length:20", "--updates", "50", "--plot", "p.png")
    assert plain.exit_code == 0
    assert plain.stdout == ""
    for words in ("delay, fourth moment", "updates that waited", "every constant set to 1", "ε*", "█", "plot p.png"):
        assert words in plain.stderr
    assert Path("p.png").stat().st_size > 1000


def test_the_lengths_of_a_run_are_replayed():
    make_run()
    found = record("runs/x", "--delay", "length:100", "--updates", "20", "--schedule", "s.parquet")
    assert "6 groups of 3 lengths" in found["lengths"]
    assert found["schedule"] == "s.parquet"
    assert read_schedule(Path("s.parquet"))[1] == 2


def test_what_a_run_used_and_what_its_shards_would_serve():
    make_run(used=[[[0, 0], [0, 1]], [[2, 1], [1, 0]]])
    followed = record("runs/x", "--delay", "recorded", "--schedule", "f.parquet")
    assert followed["updates"] == 2
    assert [tuple(row[:5]) for row in read_schedule(Path("f.parquet"))[0]] == [
        (0, 0, 0, 0, 0),
        (0, 1, 0, 1, 0),
        (1, 0, 2, 1, 1),
        (1, 1, 1, 0, 0),
    ]
    served = record("runs/x", "--delay", "shards", "--schedule", "s.parquet")
    assert served["updates"] == 3
    assert served["delay"]["quantiles"]["0.5"] == 1


def test_another_schedule_is_not_overwritten_unasked():
    common = [*LENGTHS, "--updates", "20", "--schedule", "schedule.parquet", "--delay"]
    record(*common, "3")
    assert record(*common, "3")["schedule"] == "schedule.parquet"
    stopped = command(*common, "4")
    assert stopped.exit_code == 2
    assert "schedule.parquet: holds another schedule, left alone; use --overwrite" in stopped.stderr
    assert record(*common, "4", "--overwrite")["delay"]["max"] == 4


def test_one_cluster_and_several():
    one = record(
        *CLUSTER, "--workers", "3", "--mtbf", "1", "--straggler-share", "0.3", "--in-flight-updates", "--plot", "c.svg"
    )
    (found,) = one["clusters"]
    assert found["workers"] == 3
    assert found["updates_per_hour"] > 0
    assert Path("c.svg").exists()
    several = record(*CLUSTER, "--workers", "1,2,4", "--max-ahead", "0,2")
    assert [(c["workers"], c["max_ahead"]) for c in several["clusters"]] == [(w, a) for w in (1, 2, 4) for a in (0, 2)]
    assert any(c["on_frontier"] for c in several["clusters"])
    assert not Path("schedule.parquet").exists()
    shown = command(*CLUSTER, "--workers", "1,2,4", "--plot", "several.png")
    assert shown.stdout == ""
    assert "the frontier" in shown.stderr
    assert "plot several.png" in shown.stderr
    assert Path("several.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (LENGTHS, "give --delay for a virtual clock, or --workers for a cluster"),
        ([*LENGTHS, "--delay", "3", "--workers", "4"], "and not both"),
        (["--delay", "3"], "say where lengths come from"),
        (["runs/none", "--delay", "3"], "runs/none: no such run directory"),
        (["runs/none", *LENGTHS, "--delay", "3"], "say where lengths come from"),
        ([*LENGTHS, "--delay", "-3"], "--delay -3: the delay is -3, outside 0 to 1,000,000"),
        ([*LENGTHS, "--delay", "length"], "for example length:28, length:28:group=mean"),
        ([*LENGTHS, "--delay", "length:1e5"], "the delay is far longer than the run"),
        ([*LENGTHS, "--delay", "shards"], "--delay shards needs a run directory"),
        ([*LENGTHS, "--delay", "recorded"], "--delay recorded needs a run directory"),
        ([*LENGTHS, "--delay", "schedule:none.parquet"], "none.parquet: no such file"),
        ([*LENGTHS, "--delay", "3", "--slots", "4"], "need --workers"),
        ([*LENGTHS, "--delay", "3", "--plot", "p.pdf"], "must end in .png or .svg"),
        ([*LENGTHS, "--delay", "3", "--eta", "0"], "--eta 0: must be above 0"),
        ([*LENGTHS, "--delay", "3", "--updates", "2000000"], "--updates 2000000: at most"),
        ([*LENGTHS, "--delay", "3", "--prompts", "9900000"], "a schedule holds at most 10,000,000 groups"),
        ([*LENGTHS, "--workers", "4"], "--workers needs --slots too"),
        ([*CLUSTER, "--workers", "four"], "--workers four: write whole numbers"),
        ([*CLUSTER, "--workers", "0"], "--workers 0: write whole numbers of at least 1"),
        ([*CLUSTER, "--workers", "4", "--max-ahead", "-1"], "--max-ahead -1: write whole numbers"),
        ([*CLUSTER, "--workers", "4", "--schedule", "s.parquet"], "a cluster simulation writes no schedule"),
        ([*CLUSTER, "--workers", "4,8", "--plot", "p.pdf"], "must end in .png or .svg"),
        ([*CLUSTER, "--workers", "4", "--straggler-share", "2"], "--straggler-share 2"),
    ],
)
def test_bad_requests_are_refused_in_one_line(arguments, message):
    assert message in refusal(*arguments)


def test_runs_that_cannot_serve_are_refused():
    make_run(batches=())
    assert "no rollouts to take lengths from; run gmc rollout" in refusal("runs/x", "--delay", "3")
    write_sample(RunDirectory.open(Path("runs/x")).rollouts, 0, 0)
    assert "has not trained yet" in refusal("runs/x", "--delay", "recorded")
    assert "--group-size 8: the groups in" in refusal("runs/x", "--delay", "3", "--group-size", "8")
    write_sample(RunDirectory.open(Path("runs/x")).rollouts, 2, 0)
    assert "the shard of batch 1 is missing" in refusal("runs/x", "--delay", "shards")


def test_shards_without_lengths_are_refused_by_name_and_column():
    import pyarrow.parquet as pq

    run = make_run(batches=())
    path = write_sample(run.rollouts, 0, 0)
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["response_token_ids"]), path)
    message = refusal("runs/x", "--delay", "length:28")
    assert path.name in message
    assert "column response_token_ids is missing" in message


def test_the_best_cap_is_told_only_where_the_formula_holds():
    def words(delay):
        shown = command(*LENGTHS, "--delay", delay, "--updates", "800", "--overwrite").stderr
        return " ".join(shown[shown.index("theory at") :].split())

    short = record(*LENGTHS, "--delay", "8", "--updates", "800")["theory"]
    assert short["optimal_epsilon"] == pytest.approx(0.782, abs=1e-3)
    assert "0.782" in words(8)
    assert "this delay is below it" in words(8)
    long = record(*LENGTHS, "--delay", "256", "--updates", "800", "--overwrite")["theory"]
    assert long["optimal_epsilon"] is None
    assert long["gmc"]["minimizing_epsilon"] == pytest.approx(0.767, abs=5e-4)
    assert "0.767" in words(256)
    assert "does not hold" in words(256)
    assert "5.44" not in words(256)  # what the formula would say


@pytest.mark.parametrize("width", [60, 80])
def test_no_word_of_a_table_is_cut_on_a_narrow_terminal(width, monkeypatch):
    narrow = Console(width=width, file=io.StringIO())
    monkeypatch.setattr(simulate_run, "stderr", narrow)
    assert command(*CLUSTER, "--workers", "2,4", "--max-ahead", "1,3").exit_code == 0
    assert command(*LENGTHS, "--delay", "ramp:8", "--updates", "9").exit_code == 0
    shown = narrow.file.getvalue()
    assert "…" not in shown
    assert "generation" in shown
    assert max(cell_len(line.rstrip()) for line in shown.splitlines()) <= width
