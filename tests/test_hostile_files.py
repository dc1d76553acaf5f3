"""Strangers' files: sizes are looked up before anything is read, nesting has an end, and each reader ends in one line or right.

The fuzz takes a legal file of each kind and damages it; a reader may refuse it as `GmcError` in one line, or read it.
"""

import json
import re
import shutil
import signal
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shard_samples import METADATA, make_rollouts, write_sample

from gmc.config.layers import lay
from gmc.errors import DataError, GmcError, UsageError
from gmc.models import load_model
from gmc.problems.checks import normalize_answer
from gmc.problems.load import load_problems
from gmc.problems.readers import read_rows
from gmc.store import parquet_limits
from gmc.store.checkpoints import load_newest, save_checkpoint
from gmc.store.policies import publish_policy, read_policy_info
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.reader import read_lengths, read_metadata, read_shard
from gmc.store.shards.schema import SCHEMA, encode_metadata
from gmc.store.shards.writer import rollout_table

pytestmark = pytest.mark.unit

SECONDS = 20
MEGABYTES = 400
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""What takes a second line or steers a terminal."""


def write_repeating(path, column, value, rows=8):
    """A small shard in which every row says one large value, by dictionary and compressed."""
    table = pa.Table.from_batches([rollout_table(make_rollouts(groups=rows // 2), "x")])
    place = table.schema.get_field_index(column)
    values = pa.array([value] * table.num_rows, SCHEMA.field(column).type)
    table = table.set_column(place, SCHEMA.field(column), values).replace_schema_metadata(encode_metadata(METADATA))
    pq.write_table(table, path, compression="zstd")
    return path


@pytest.mark.parametrize(("column", "value"), [("answer", "x" * 100_000), ("response_token_ids", [1] * 30_000)])
def test_what_a_small_file_unpacks_to_is_looked_up_first(tmp_path, monkeypatch, column, value):
    path = write_repeating(tmp_path / "b000004-v000002.parquet", column, value)
    assert path.stat().st_size < 50_000
    monkeypatch.setattr(parquet_limits, "MAX_COLUMN_BYTES", 300_000)
    with pytest.raises(DataError, match=rf"column {column} unpacks to .* GiB, and the limit is .* GiB a column"):
        read_shard(path)


def test_a_problem_file_is_measured_as_well(tmp_path, monkeypatch):
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"question": ["x" * 100_000] * 10, "answer": ["1"] * 10}), path)
    monkeypatch.setattr(parquet_limits, "MAX_COLUMN_BYTES", 300_000)
    with pytest.raises(DataError, match="column question unpacks to"):
        read_rows(path)


def test_texts_are_read_only_when_asked_for(tmp_path, monkeypatch):
    path = write_repeating(tmp_path / "b000004-v000002.parquet", "response", "x" * 100_000)
    monkeypatch.setattr(parquet_limits, "MAX_COLUMN_BYTES", 300_000)
    rows = read_shard(path, texts=False).rollouts
    assert {(row.prompt, row.response) for row in rows} == {("", "")}
    monkeypatch.undo()
    whole = read_shard(path).rollouts
    assert [replace(row, prompt="", response="") for row in whole] == rows
    assert whole[0].response == "x" * 100_000


def test_a_row_longer_than_the_model_s_context_is_named(tmp_path):
    path = write_sample(tmp_path)
    longest = max(len(row.prompt_token_ids) + len(row.response_token_ids) for row in make_rollouts(seed=4))
    read_shard(path, context_tokens=longest)
    message = f"column prompt_token_ids: {longest} tokens with its response, more than the model's context of {longest - 1}"
    with pytest.raises(DataError, match=message):
        read_shard(path, context_tokens=longest - 1)


@pytest.mark.parametrize("depth", [60, 400, 5000, 100_000])
@pytest.mark.parametrize("field", ["answer", "x"])
def test_deep_problem_rows_are_refused_by_line(tmp_path, depth, field):
    record = {"question": "q?", "answer": "1", field: 0}
    text = json.dumps(record).replace(f'"{field}": 0', f'"{field}": {"[" * depth}{"]" * depth}')
    (tmp_path / "p.jsonl").write_text(text + "\n")
    with pytest.raises(DataError, match=r"p.jsonl, line 1: (nested more than|not valid JSON \(nested)"):
        load_problems(str(tmp_path / "p.jsonl"))


def test_numbers_beyond_every_exponent_are_text_or_numbers(tmp_path):
    (tmp_path / "p.jsonl").write_text('{"question": "q?", "answer": "1e1000000"}\n{"question": "r?", "answer": 1e999999999}\n')
    assert [problem.answer for problem in load_problems(str(tmp_path / "p.jsonl")).problems] == ["1e1000000", "1e999999999"]
    assert normalize_answer("1e1000000") == normalize_answer("10e999999")
    digits = "1" * 40
    assert normalize_answer(digits + "0") != normalize_answer(digits + "1")  # equal if rounded to 28 digits
    assert normalize_answer("27.0") == normalize_answer("27")


@pytest.mark.parametrize(
    "value", ["[" * 5000 + "]" * 5000, "{a=" * 400 + "1" + "}" * 400, "9" * 5000, "1" * 10**6, "{" + "a." * 30 + "b = 1}"]
)
def test_recipes_beyond_reason_are_one_line(tmp_path, value):
    recipe = tmp_path / "r.toml"
    recipe.write_text(f"rollout = {value}\n")
    with pytest.raises(UsageError) as caught:
        lay(recipe=str(recipe))
    assert str(recipe) in str(caught.value)
    with pytest.raises(UsageError, match=r"^--set rollout"):
        lay(assignments=[f"rollout={value}"])
    recipe.write_text(".".join("a" * 30_000) + " = 1\n")
    with pytest.raises(UsageError, match="nested more than 20 levels"):
        lay(recipe=str(recipe))


def test_a_header_without_names_is_not_an_empty_file(tmp_path):
    (tmp_path / "p.csv").write_text(" ,\n1,2\n")
    with pytest.raises(DataError, match=r"p\.csv, line 1: the header's 2 columns have no names"):
        read_rows(tmp_path / "p.csv")


@pytest.fixture(scope="module")
def legal(tmp_path_factory):
    """One legal file or folder of each kind."""
    root = tmp_path_factory.mktemp("legal")
    run = RunDirectory.create(root / "run", model="embedded", seed=0)
    state = {"w": torch.ones(3, 5)}
    save_checkpoint(root, 4, weights=state, optimizer=state, estimator={}, extra={"run_id": "r", "source": {}}, keep=1)
    (root / "problems.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n{"question": "2+2?", "answer": [4]}\n')
    (root / "problems.csv").write_text('question,answer\n"1+1?",2\n"a, b?",3\n')
    pq.write_table(pa.table({"question": ["1+1?", "2+2?"], "answer": ["2", "4"]}), root / "problems.parquet")
    (root / "recipe.toml").write_text('seed = 3\n[rollout]\nprompts = 4\n[estimator]\nname = "gmc"\n')
    return {
        "shard": write_sample(root),
        "policy": publish_policy(load_model("embedded"), root, 3, "r"),
        "checkpoint": root / "u000004",
        "run": run.path,
        **{path.name: path for path in root.glob("*.*") if path.stem in ("problems", "recipe")},
    }


PARTS = ("weights.safetensors", "optimizer.safetensors", "estimator.safetensors")
READERS = {
    "shard": [("", lambda path: (read_shard(path), read_lengths(path), read_metadata(path)))],
    "policy": [("gmc.json", read_policy_info), ("config.json", load_model), ("model.safetensors", load_model)],
    "checkpoint": [(name, lambda path: load_newest(path.parent)) for name in ("state.json", *PARTS)],
    "run": [("run.toml", RunDirectory.open)],
    "problems.jsonl": [("", lambda path: load_problems(str(path)))],
    "problems.csv": [("", lambda path: load_problems(str(path)))],
    "problems.parquet": [("", lambda path: load_problems(str(path)))],
    "recipe.toml": [("", lambda path: lay(recipe=str(path)))],
}
CASES = [(kind, part, read) for kind, parts in READERS.items() for part, read in parts]


PIECES = [b"\0" * 64, b"[" * 3000, b"9" * 5000, b"\xff\xfe", b'"', b"\x1b[2J", b"\\u001b[2J\\n", b"\xe2\x80\xa8"]


@st.composite
def damages(draw):
    """What happens to bytes: some replaced, cut out, doubled or put in."""
    return draw(
        st.lists(
            st.tuples(
                st.sampled_from(["replace", "cut", "double", "insert"]),
                st.floats(0, 1),
                st.integers(1, 40),
                st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from(PIECES)),
            ),
            min_size=1,
            max_size=4,
        )
    )


def damaged(content, steps):
    for kind, place, length, piece in steps:
        start = int(place * len(content))
        head, middle, tail = content[:start], content[start : start + length], content[start + length :]
        content = head + {"replace": piece, "cut": b"", "double": middle + middle, "insert": piece + middle}[kind] + tail
    return content


@contextmanager
def within_limits(megabytes=MEGABYTES):
    def late(number, frame):
        raise AssertionError(f"a reader takes longer than {SECONDS} s")

    before = forget_peak()
    previous = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    assert peak_kilobytes() - before < megabytes * 1024


def forget_peak():
    """Forget how much memory this process has held at once before; what it holds now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_kilobytes()


def peak_kilobytes():
    return int(re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[1])


def test_memory_that_was_held_and_let_go_is_noticed_also_after_more_was_held_before():
    b"x" * (60 << 20)
    with within_limits(megabytes=20):
        b"x" * (10 << 20)
    with pytest.raises(AssertionError), within_limits(megabytes=20):
        b"x" * (40 << 20)  # above glibc's largest threshold, so that no page let go before is taken again


@pytest.mark.parametrize(("kind", "part", "read"), CASES, ids=[f"{kind}-{part}" for kind, part, _ in CASES])
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(steps=damages())
def test_a_damaged_file_is_read_or_refused_in_one_line(legal, tmp_path_factory, kind, part, read, steps):
    source = legal[kind]
    path = tmp_path_factory.getbasetemp() / "damaged" / source.name
    shutil.rmtree(path.parent, ignore_errors=True)
    path.parent.mkdir()
    shutil.copytree(source, path) if source.is_dir() else shutil.copy(source, path)
    target = path / part
    content = target.read_bytes()
    changed = damaged(content, steps)
    target.write_bytes(changed)
    with within_limits():
        try:
            read(path)
        except GmcError as error:
            assert not CONTROL.search(str(error))  # noqa: PT017
            assert len(str(error)) < 3000  # noqa: PT017
            assert str(path.parent) in str(error)  # noqa: PT017
        else:
            assert kind != "checkpoint" or changed == content or part == "state.json"
