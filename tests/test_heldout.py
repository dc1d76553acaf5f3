"""train.eval_every: held-out problems are scored along the way, training does not notice, and the best policy is kept."""

import json
import re
from dataclasses import replace

import pytest
from training_runs import metrics_of, small_settings, train_run, weights_of

from gmc.config import RunSettings
from gmc.errors import GmcError, UsageError
from gmc.evaluation.asking import resolve_request
from gmc.evaluation.request import Request
from gmc.evaluation.run import evaluate_run
from gmc.evaluation.subjects import run_candidates
from gmc.live.cleanup import clean_policies
from gmc.live.heartbeats import Watcher
from gmc.live.overview import overview
from gmc.resolving.checks import check_settings, heldout_benchmark
from gmc.store.best import HELDOUT, Scored, best_of, heldout_scores
from gmc.store.policies import list_policies
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.reader import read_shard
from gmc.training import run as training
from gmc.training import session
from gmc.training.loop import Observer

UPDATES = 7
PLAIN = ("delay=2", f"train.updates={UPDATES}", "train.publish_every=5", "train.checkpoint_every=2")
SCORED = (*PLAIN, "train.eval_every=2", "train.eval_limit=6", "eval.samples=3")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same training without and with held-out scores."""
    folder = tmp_path_factory.mktemp("heldout")
    train_run(folder / "plain", small_settings(*PLAIN))
    train_run(folder / "scored", small_settings(*SCORED))
    return folder


def without_scores(path):
    return [{key: value for key, value in record.items() if not key.startswith("heldout/")} for record in metrics_of(path)]


def scores_of(path):
    return heldout_scores(metrics_of(path))


@pytest.mark.train
def test_training_does_not_notice(runs):
    plain, scored = runs / "plain", runs / "scored"
    assert weights_of(scored) == weights_of(plain)
    assert without_scores(scored) == metrics_of(plain)
    assert (scored / "used.jsonl").read_text() == (plain / "used.jsonl").read_text()
    shards = sorted(path.name for path in (plain / "rollouts").iterdir())
    assert sorted(path.name for path in (scored / "rollouts").iterdir()) == shards
    for name in shards:
        one, other = (read_shard(folder / "rollouts" / name).rollouts for folder in (plain, scored))
        assert [replace(row, run_id="") for row in one] == [replace(row, run_id="") for row in other]


@pytest.mark.train
def test_scores_come_at_their_interval_and_at_the_end_and_are_those_of_gmc_eval(runs):
    path = runs / "scored"
    scores = scores_of(path)
    assert [scored.version for scored in scores] == [2, 4, 6, 7]
    published = {version for version, _ in list_policies(path / "policies")}
    for version, expected in ((scored.version, scored.score) for scored in scores if scored.version in published):
        request, settings = resolve_request(Request(policy=str(version)), path, flags={"limit": 6, "n": 3, "max_tokens": 64})
        request = Request(**{**vars(request), "run": RunDirectory.open(path)})
        [result] = evaluate_run(request, settings, watch=lambda candidate, task: lambda share, new: None).results
        estimate = result.record["scores"]["avg@3"]
        record = metrics_of(path)[version - 1]
        assert expected == estimate["value"]
        assert (record["heldout/low"], record["heldout/high"]) == (estimate["low"], estimate["high"])


@pytest.mark.train
def test_the_best_policy_is_published_and_found_by_name(runs):
    path = runs / "scored"
    directory, scores = RunDirectory.open(path), scores_of(path)
    highest = max(scored.score for scored in scores)
    best = next(scored for scored in scores if scored.score == highest)
    [candidate] = run_candidates(directory, "best")
    assert candidate.version == best.version
    assert {version for version, _ in list_policies(path / "policies")} >= {best.version, 5, UPDATES}
    found = overview(directory)["heldout"]
    assert found == {"best": vars(best), "last": vars(scores[-1])}


@pytest.mark.train
def test_a_run_that_scored_nothing_says_how_to(runs):
    with pytest.raises(UsageError, match=r"--policy best: .* --eval-every 50"):
        run_candidates(RunDirectory.open(runs / "plain"), "best")


class KilledError(Exception):
    """Stands for a kill."""


@pytest.mark.train
def test_a_run_killed_before_its_best_policy_was_published_publishes_it_on_resume(runs, tmp_path, monkeypatch):
    publish, path = session.publish_policy, tmp_path / "run"
    [best] = run_candidates(RunDirectory.open(runs / "scored"), "best")

    def dies(policy, directory, version, run_id):
        if version == best.version:
            raise KilledError
        return publish(policy, directory, version, run_id)

    monkeypatch.setattr(session, "publish_policy", dies)
    with pytest.raises(KilledError):
        train_run(path, small_settings(*SCORED))
    assert best.version not in {version for version, _ in list_policies(path / "policies")}
    monkeypatch.setattr(session, "publish_policy", publish)
    train_run(path, small_settings(*SCORED), resume=True)
    assert metrics_of(path) == metrics_of(runs / "scored")
    assert list_policies(path / "policies")[0][0] == list_policies(runs / "scored" / "policies")[0][0]
    assert run_candidates(RunDirectory.open(path), "best")[0].version == best.version
    assert weights_of(path) == weights_of(runs / "scored")


@pytest.mark.train
def test_the_best_of_before_a_stop_stays_the_best(tmp_path, monkeypatch):
    """The score of version 2 is made the highest there can be; after a resume later ones do not replace it."""
    settings, path, stop = small_settings(*SCORED), tmp_path / "run", []

    class StopsAfterThree(Observer):
        def updated(self, update, metrics):
            metrics_file = path / "metrics.jsonl"
            if update == 1:
                lines = metrics_file.read_text().splitlines()
                lines[1] = json.dumps(json.loads(lines[1]) | {HELDOUT: 2.0})
                metrics_file.write_text("".join(f"{line}\n" for line in lines))
            if update == 2:
                stop.append(True)

    training.train_run(path, settings, observer=StopsAfterThree(), stopping=lambda: bool(stop))
    result = training.train_run(path, settings, resume=True)
    assert (result.best_version, result.best_score) == (2, 2.0)
    assert {version for version, _ in list_policies(path / "policies")} == {2, 5, UPDATES}, "the best, every fifth, the last"


@pytest.mark.unit
def test_of_equal_scores_the_earliest_is_the_best():
    assert best_of([Scored(5, 0.25), Scored(10, 0.5), Scored(15, 0.5), Scored(20, 0.125)]) == Scored(10, 0.5)
    assert best_of([]) is None
    assert heldout_scores([{"update": 3, "reward/mean": 1.0}, {"update": 4, HELDOUT: 0.5}]) == [Scored(5, 0.5)]


def settings_with(*assignments: str) -> RunSettings:
    return small_settings("train.eval_every=10", *assignments)


@pytest.mark.unit
def test_what_is_scored_is_known_or_asked_for():
    assert heldout_benchmark(settings_with()).source == "arithmetic:eval"
    assert heldout_benchmark(settings_with("train.eval_problems=aime24")).name == "aime24"
    own = heldout_benchmark(
        settings_with("train.eval_problems=held.jsonl", "problems.question_field=q", "problems.source=p.jsonl")
    )
    assert (own.source, own.question_field, own.answer_field) == ("held.jsonl", "q", None)
    with pytest.raises(UsageError, match=r"train.eval_problems=held_out.jsonl; mine.jsonl is what training asks"):
        check_settings(settings_with("problems.source=mine.jsonl"))
    with pytest.raises(UsageError, match=r"is a suite; name one of math500"):
        check_settings(settings_with("train.eval_problems=paper-six"))


@pytest.mark.train
def test_problems_that_are_not_there_are_refused_before_anything_is_sampled(tmp_path):
    with pytest.raises(GmcError, match=re.escape(str(tmp_path / "none.jsonl"))):
        train_run(tmp_path / "run", settings_with(f"train.eval_problems={tmp_path / 'none.jsonl'}", "delay=0"))
    assert not (tmp_path / "run" / "rollouts").exists() or not any((tmp_path / "run" / "rollouts").iterdir())


@pytest.mark.unit
def test_live_clean_up_spares_the_best(tmp_path):
    run = RunDirectory.create(tmp_path / "run", model="m", seed=0)
    for version in range(6):
        folder = run.policies / f"v{version:06d}"
        folder.mkdir(parents=True)
        (folder / "READY").touch()
    assert clean_policies(run, Watcher(run.followers, 60.0), 3, keep=2) == [1]
    assert [version for version, _ in list_policies(run.policies)] == [0, 2, 3, 4, 5]
