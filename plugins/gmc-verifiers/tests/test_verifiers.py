"""Environments of the library verifiers, written for these tests, are played by gmc. Skipped where it is not installed."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gmc.environments.base import ASSISTANT, Turn
from gmc.environments.limits import called
from gmc.errors import DataError, GmcError, UsageError
from gmc.problems.base import Problem
from gmc.problems.load import load_problems
from gmc.rewards.base import Score
from gmc.testing import check_environment

HERE = Path(__file__).parent
pytest.importorskip("verifiers.v1", reason="verifiers is not installed: pip install ./plugins/gmc-verifiers")

import vf_refused  # noqa: E402
from gmc_verifiers.conversation import UnsupportedError, new_text  # noqa: E402
from gmc_verifiers.environment import VerifiersEnvironment  # noqa: E402
from gmc_verifiers.problems import main, rows  # noqa: E402


def problems(name):
    return [Problem(row["id"], row["question"], row["answer"], fields=row) for row in rows(name, None)]


@pytest.fixture
def environment(request):
    name, seconds = request.param if isinstance(request.param, tuple) else (request.param, 60)
    environment = VerifiersEnvironment(VerifiersEnvironment.Settings(env=name))
    environment.seconds = seconds
    yield environment
    environment.close()


def play(environment, problem, *texts, cut=False):
    """An episode in which the model says the texts; what it was asked and answered, and what that was worth."""
    episode = environment.start(problem)
    heard = [episode.question]
    for turn, text in enumerate(texts):
        episode.turns.append(Turn(ASSISTANT, text))
        if cut and turn == len(texts) - 1:
            break
        answer = environment.reply(episode, text)
        heard.append(answer)
        if answer is not None:
            episode.turns.append(Turn("user", answer))
    return heard, environment.worth(episode, Score(9.0, "the run's"))


@pytest.mark.unit
@pytest.mark.parametrize("environment", ["vf_sums"], indirect=True)
def test_a_single_turn_is_asked_and_scored_by_the_environment(environment):
    problem = problems("vf_sums")[2]
    heard, score = play(environment, problem, "3")
    assert heard == ["What is 2+1?", None]
    assert score.reward == 1.25
    assert score.note == "odd 0.25, right 1"
    assert play(environment, problem, "5")[1].reward == 0.25
    assert play(environment, problem, "four!!")[1].reward == 0.0


@pytest.mark.unit
@pytest.mark.parametrize("environment", ["vf_guess"], indirect=True)
def test_several_turns_are_answered_by_the_environment(environment):
    problem = problems("vf_guess")[1]
    opening = "Say a number.\n\nGuess."
    heard, score = play(environment, problem, "3", "9", "7")
    assert heard == [opening, "Higher.", "Lower.", None]
    assert score.reward == pytest.approx(1 / 3)
    heard, score = play(environment, problem, "7")
    assert heard == [opening, None]
    assert score.reward == 1.0
    heard, score = play(environment, problem, "1", "1", "1")  # the environment's own limit of turns
    assert heard == [opening, "Higher.", "Higher.", None]
    assert score.reward == 0.125


@pytest.mark.unit
@pytest.mark.parametrize("environment", ["vf_guess"], indirect=True)
def test_an_episode_that_was_cut_off_is_scored_as_it_stands(environment, caplog):
    problem = problems("vf_guess")[1]
    assert play(environment, problem, "3", "9 9 9", cut=True)[1].reward == 0.125
    assert play(environment, problem, "7", cut=True)[1].reward == 1.125
    assert not caplog.records  # verifiers takes it for no failure
    # The environment's answer did not fit: the model was not heard again.
    heard, score = play(environment, problem, "3")
    assert heard[-1] == "Higher."
    assert score.reward == 0.125


@pytest.mark.unit
def test_episodes_of_a_batch_do_not_mix():
    environment = VerifiersEnvironment(VerifiersEnvironment.Settings(env="vf_guess"))
    three, seven = problems("vf_guess")
    episodes = [environment.start(problem) for problem in [three, seven] * 20]
    try:
        for said, answer in [("3", "Higher."), ("9", "Lower."), ("7", None)]:
            for episode in episodes:
                if said == "3" or episode.problem is seven:
                    episode.turns.append(Turn(ASSISTANT, said))
                    assert environment.reply(episode, said) == (answer if episode.problem is seven else None)
        worth = [environment.worth(episode, Score(0.0, "none")).reward for episode in episodes]
        assert worth == pytest.approx([1.0, 1 / 3] * 20)
    finally:
        environment.close()


@pytest.mark.unit
@pytest.mark.parametrize("name", ["vf_sums", "vf_guess"])
def test_it_keeps_the_contract_of_environments(name):
    check_environment(VerifiersEnvironment, {"env": name}, problem=problems(name)[0])


@pytest.mark.unit
@pytest.mark.parametrize(
    ("exported", "words"),
    [
        ("TwoEnv", "has 2 agents (solver, critic)"),
        ("CodexEnv", "wants the harness 'codex'"),
        ("BashEnv", "wants the harness 'bash'"),
        ("ElsewhereEnv", "sets model of its agent"),
    ],
)
def test_what_cannot_be_played_is_refused_by_name(exported, words, monkeypatch):
    monkeypatch.setattr(vf_refused, "__all__", [exported, "GuessTaskset"])
    with pytest.raises(UsageError) as error:
        list(rows("vf_refused", None))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("exported", "words"),
    [
        ("TwiceEnv", "more than once"),
        ("RaisesEnv", "no luck"),
        ("SlowEnv", "longer than 3 s, the setting rollout.environment_seconds"),
    ],
)
def test_what_goes_wrong_in_an_episode_ends_in_one_line(exported, words, monkeypatch):
    monkeypatch.setattr(vf_refused, "__all__", [exported, "GuessTaskset"])
    environment = VerifiersEnvironment(VerifiersEnvironment.Settings(env="vf_refused"))
    environment.seconds = 3
    try:
        with pytest.raises(GmcError) as error:
            play(environment, problems("vf_refused")[0], "3")
    finally:
        environment.close()
    assert words in str(error.value)
    assert "env='vf_refused'" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.unit
def test_a_call_that_gmc_ends_leaves_no_step_behind(monkeypatch):
    monkeypatch.setattr(vf_refused, "__all__", ["SlowEnv", "GuessTaskset"])
    environment = VerifiersEnvironment(VerifiersEnvironment.Settings(env="vf_refused"))
    environment.seconds = 2
    problem = problems("vf_refused")[0]
    try:
        with pytest.raises(GmcError, match=r"longer than 2 s.*rollout\.environment_seconds"), called(environment, "p", "start"):
            environment.start(problem)
        time.sleep(0.2)
        loop = environment._host._loop
        steps = [task for task in asyncio.all_tasks(loop) if "Host" in repr(task.get_coro())]
        assert not steps
    finally:
        started = time.monotonic()
        environment.close()
    assert time.monotonic() - started < 2


@pytest.mark.unit
@pytest.mark.parametrize("environment", ["vf_sums"], indirect=True)
def test_problems_of_another_file_or_version_are_refused(environment):
    good = dict(problems("vf_sums")[0].fields)
    for change, words in [
        ({"verifiers_task": None}, "has no verifiers_task"),
        ({"verifiers_task": 4}, "has no task 4"),
        ({"verifiers_key": "0"}, "is another one now"),
    ]:
        with pytest.raises(DataError, match=words):
            environment.start(Problem("p", "?", "", fields={**good, **change}))


@pytest.mark.unit
def test_an_environment_that_is_not_installed_is_named(capsys, tmp_path):
    assert main(["no-such-env", str(tmp_path / "p.jsonl")]) == 2
    assert "'no-such-env'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.unit
def test_the_problem_file_is_one_of_gmc(tmp_path):
    file = tmp_path / "p.jsonl"
    assert main(["vf_sums", str(file), "--limit", "3"]) == 0
    read = load_problems(str(file)).problems
    assert [(problem.question, problem.answer) for problem in read] == [(f"What is {n}+1?", f"{n + 1}") for n in range(3)]
    assert [problem.fields["verifiers_task"] for problem in read] == [0, 1, 2]


@pytest.mark.unit
def test_only_plain_turns_are_played():
    user, said = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    assert new_text([], [{"role": "system", "content": "s"}, user]) == "s\n\na"
    assert new_text([user, said], [user, said, {"role": "user", "content": "c"}]) == "c"
    for before, after in [
        ([user, said], [user, {**said, "content": "c"}, user]),
        ([user, said], [user, said, user, user]),
        ([], [user, said, user]),
        ([user, said], [user, said, {"role": "tool", "content": "1"}]),
        ([], [{"role": "user", "content": [{"type": "image_url"}]}]),
    ]:
        with pytest.raises(UnsupportedError):
            new_text(before, after)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("name", ["vf_sums", "vf_guess"])
def test_it_installs_samples_and_trains(name, tmp_path):
    packages = tmp_path / "packages"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), str(HERE)]), "OMP_NUM_THREADS": "1"}

    def command(*arguments):
        whole = [sys.executable, *map(str, arguments)]
        result = subprocess.run(whole, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stderr + result.stdout
        return result.stdout

    command("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", packages, HERE.parent)
    write = "import sys; from gmc_verifiers.problems import main; sys.exit(main(sys.argv[1:]))"
    command("-c", write, name, "p.jsonl")
    run = ["--run", "r", "--environment", f"verifiers(env={name!r})", "--reward", "verifiers", "--problems", "p.jsonl"]
    small = ["--prompts", "2", "--group-size", "16", "--max-tokens", "24", "--delay", "0", "--updates", "1", "--json"]
    summary = json.loads(command("-m", "gmc", "train", *run, *small))
    assert summary["finished"] is True
    import gmc

    frame = gmc.read_rollouts(tmp_path / "r")
    assert len(frame) == 32
    assert set(frame["status"]) == {"verifiers"}
    if name == "vf_sums":
        assert frame["reward"].nunique() > 1  # or the update would change nothing
        (update,) = (tmp_path / "r" / "metrics.jsonl").read_text("utf-8").splitlines()
        assert json.loads(update)["optimizer/gradient_norm"] > 0
    else:
        masks = [mask for mask in frame["response_mask"] if mask is not None]
        assert any(False in list(mask) for mask in masks)
        assert all(next(iter(mask)) for mask in masks)
