"""Strangers' files and words of the latest kinds: shared checkpoints, claims, unfinished work, whole runs, tests, specs."""

import json
import shutil
import string

import pytest
import torch
from evaluation_parts import ScriptedEngine
from evaluation_parts import run as evaluate
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shard_samples import make_rollouts
from test_hostile_files import damages, within_limits
from test_hostile_newer import attack
from training_runs import small_settings

from gmc.environments.build import build_environment, complete
from gmc.errors import DataError, GmcError, UsageError
from gmc.export.plan import plan_export
from gmc.lab.study_file import read_grids
from gmc.lab.toy.grid import ToyGrid
from gmc.live.claims import read_ledger
from gmc.live.frontier import Frontier, claim_path, decision_path
from gmc.live.heartbeats import HeartbeatWriter
from gmc.live.listing import describe_run
from gmc.live.overview import overview
from gmc.models import load_model
from gmc.parameters.saved import read_parts, write_parts
from gmc.rewards.code_tests import read_tests
from gmc.rewards.specs import parse_reward
from gmc.simulator.lengths import lengths_from_spec
from gmc.store.best import best_of, heldout_scores
from gmc.store.checkpoints import SHARED, checksum, finish_shared_checkpoint, load_newest
from gmc.store.files import begin_directory, write_json
from gmc.store.logs import UsedBatches, read_metrics
from gmc.store.policies import publish_policy
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.unfinished import decode_rows, encode_rows

pytestmark = pytest.mark.unit

FUZZ = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}


def empty(key, size, dtype):
    return torch.empty(size, dtype=dtype)


def make_run(root):
    """A live run that has trained a little, as far as status, lists and exports look."""
    run = RunDirectory.create(root / "run", model="embedded", seed=0)
    run.save_settings("train", small_settings("train.eval_every=2"))
    HeartbeatWriter(run.followers, "someone", 5.0).write("alive")
    for update in range(4):
        with run.used.open("a") as used, run.metrics.open("a") as metrics:
            used.write(json.dumps({"update": update, "groups": [[update, 0], [update, 1]]}) + "\n")
            score = {"heldout/score": 0.25} if update == 3 else {}
            metrics.write(json.dumps({"update": update, "reward/mean": 0.5, "delay/max": 1, **score}) + "\n")
    publish_policy(load_model("embedded"), run.policies, 4, run.run_id)
    write_json(claim_path(run, 4, 1) / "record.json", {"follower": "someone"})
    write_json(decision_path(run, 3) / "record.json", {"follower": "someone", "shard": "b000003-v000002.parquet"})
    return run.path


def make_shared(root):
    """A checkpoint that two ranks could have written."""
    path = root / "u000004"
    folder = begin_directory(path)
    write_parts(folder / SHARED, {"weights/w": torch.ones(6, 5), "optimizer/m": torch.zeros(3)}, None)
    digests = {file.name: checksum(file) for file in (folder / SHARED).iterdir()}
    finish_shared_checkpoint(folder, path, 4, digests=digests, extra={"run_id": "r", "source": {}}, keep=1)
    return path


@pytest.fixture(scope="module")
def legal(tmp_path_factory):
    """One legal file or folder of each kind."""
    root = tmp_path_factory.mktemp("later")
    (root / "rows").write_bytes(encode_rows(make_rollouts(), "rows"))
    (root / "toy.toml").write_text('[[grid]]\ndelays = [0, "4"]\nseeds = 2\nupdates = 60\n[grid.rules]\ngmc = {}\n')
    (root / "lengths").write_text("".join(f"{n}\n" for n in range(8)))
    with pytest.raises(KeyboardInterrupt):
        evaluate(root / "evals", batch_sequences=8, engine=stopping())
    (parts,) = (root / "evals").glob("*.parts")
    return {
        "shared": make_shared(root),
        "run": make_run(root),
        "rows": root / "rows",
        "toy": root / "toy.toml",
        "lengths": root / "lengths",
        "evals": parts.parent,
    }


def stopping():
    def interrupt(call):
        if call > 2:
            raise KeyboardInterrupt

    return ScriptedEngine(interrupt=interrupt)


def see_run(path):
    """What status, the list of runs, best and export read of a run; `path`: of a file in it."""
    run = RunDirectory.open(
        path if (path / "run.toml").exists() else next(p for p in path.parents if (p / "run.toml").exists())
    )
    overview(run)
    describe_run(run.path)
    best_of(heldout_scores(read_metrics(run.metrics)))
    for policy in ("latest", "best"):
        plan_export(run, policy=policy)


def see_claims(path):
    run = RunDirectory.open(path.parents[2])
    read_ledger(run)
    frontier = Frontier(run)
    frontier.newest_claim(4)
    list(frontier.unused(UsedBatches()))


READERS = {
    "shared state": ("state.json", lambda path: load_newest(path.parents[1])),
    "shared file": (f"{SHARED}/*.safetensors", lambda path: (load_newest(path.parents[2]), read_parts(path.parent, empty))),
    "shared parts": (f"{SHARED}/*.safetensors", lambda path: read_parts(path.parent, empty)),
    "run metrics": ("metrics.jsonl", see_run),
    "run used": ("used.jsonl", see_run),
    "run settings": ("settings/train.toml", see_run),
    "run heartbeat": ("followers/someone.json", see_run),
    "run record": ("policies/v000004/gmc.json", see_run),
    "run config": ("policies/v000004/config.json", see_run),
    "run claim": ("claims/b000004.1/record.json", see_claims),
    "run decision": ("claims/b000003.done/record.json", see_claims),
    "rows": ("", lambda path: decode_rows(path.read_bytes(), str(path))),
    "lengths": ("", lambda path: lengths_from_spec(str(path), prompts=1, group_size=2, seed=0)),
    "toy": ("", lambda path: read_grids(path, ToyGrid)),
    "evals description": ("*.parts/description.json", lambda path: evaluate(path.parents[1], batch_sequences=8, resume=True)),
    "evals part": ("*.parts/part-000000.parquet", lambda path: evaluate(path.parents[1], batch_sequences=8, resume=True)),
}


@pytest.mark.parametrize("kind", list(READERS))
def test_an_undamaged_file_is_read(legal, tmp_path_factory, kind):
    pattern, read = READERS[kind]
    source = legal[kind.split()[0]]
    path = tmp_path_factory.mktemp("whole") / source.name
    shutil.copytree(source, path) if source.is_dir() else shutil.copy(source, path)
    read(next(path.glob(pattern)) if pattern else path)


@pytest.mark.parametrize("kind", list(READERS))
@settings(max_examples=12, **FUZZ)
@given(steps=damages())
def test_a_damaged_file_is_read_or_refused_in_one_line(legal, tmp_path_factory, kind, steps):
    pattern, read = READERS[kind]
    source = legal[kind.split()[0]]
    part = next(source.glob(pattern)).relative_to(source) if pattern else ""
    attack(source, part, read, steps, tmp_path_factory)


WORDS = st.text(st.sampled_from(string.ascii_letters[:6] + "0123456789()[]{}=:,.'\"\\ -_\x1b\0\n" + "é"), max_size=60)
SPECS = st.one_of(
    WORDS,
    st.builds("{}({}){}".format, st.sampled_from(["retry", "tools", "math", "length"]), WORDS, WORDS),
    st.sampled_from(["retry(tries=" + "9" * 5000 + ")", "math(" + "(" * 3000 + ")", "length(a=" + "[" * 500 + "]" * 500 + ")"]),
)


@examples(150, **FUZZ)
@given(text=SPECS)
def test_a_spec_is_understood_or_refused_in_one_line(text):
    for read in (parse_reward, build_environment, complete):
        with within_limits():
            try:
                read(text)
            except UsageError as error:
                assert "\n" not in str(error).replace(text, "")  # noqa: PT017


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["input", "inputs", "output", "outputs", "x"]), inner, max_size=3),
    ),
    max_leaves=8,
)


@examples(150, **FUZZ)
@given(value=VALUES, written=st.booleans())
def test_tests_of_code_are_read_or_refused_in_one_line(value, written):
    try:
        tests = read_tests(json.dumps(value) if written else value)
    except DataError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert all(test.source or test.stdout is not None for test in tests)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"inputs": ' + "[" * 50_000, "9" * 5000])
def test_tests_of_code_beyond_reason_are_python_that_fails_or_one_line(text):
    try:
        assert read_tests(text)[0].source == text
    except GmcError as error:
        assert "\n" not in str(error)  # noqa: PT017
