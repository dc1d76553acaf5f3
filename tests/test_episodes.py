"""Episodes: played in a batch as one by one, tokens never encoded again, limits kept, failures named."""

import math

import numpy as np
import pytest
import torch
from tiny_models import tiny_model

from gmc.config.sampling import Sampling
from gmc.engines.base import Completion, Engine
from gmc.engines.transformers import TransformersEngine
from gmc.environments.base import Environment, Episode
from gmc.environments.limits import EnvironmentFailedError
from gmc.environments.retry import Retry
from gmc.problems.base import Problem
from gmc.problems.templates import Template
from gmc.rewards.base import Reward, Score
from gmc.rollouts.asked import Asked
from gmc.rollouts.episodes import turn_seed
from gmc.rollouts.respond import respond

pytestmark = pytest.mark.unit

TEMPLATE = Template("characters-v1", (), lambda question: f"{question}=", follow=lambda reply: f"\n{reply}=")
PROBLEMS = [Problem("a", "1+2", "3"), Problem("bb", "10*7-4", "66"), Problem("c", "5", "5")]
SEEDS = [11, 22, 33]


class Nagging(Environment):
    """Asks again after every turn, with more words the longer the model spoke, until it has spoken three times."""

    name = "nagging"
    summary = "asks again"

    def reply(self, episode: Episode, text: str) -> str | None:
        return None if episode.model_turns == 3 else "more" + "x" * (len(text) % 4)


class Length(Reward):
    """The number of characters of the last turn."""

    name = "length"
    summary = "the number of characters"

    def __init__(self) -> None:
        super().__init__()
        self.seen = []

    def score(self, samples):
        self.seen += samples
        return [Score(float(len(sample.text)), "cut" if sample.truncated else "whole") for sample in samples]


def ask(model, environment=None, problems=PROBLEMS):
    return [Asked.of(problem, TEMPLATE, model.tokenizer, environment) for problem in problems]


def play(model, environment, *, engine=None, max_tokens=40, group_size=3, reward=None, problems=PROBLEMS, temperature=0.9):
    return respond(
        engine or TransformersEngine(model),
        model.tokenizer,
        reward or Length(),
        ask(model, environment, problems),
        group_size=group_size,
        sampling=Sampling(temperature=temperature, max_tokens=max_tokens),
        seeds=SEEDS[: len(problems)],
        environment=environment,
    )


def literal_turn(model, context, seed, sample, limit, temperature=0.9):
    """One turn, a token at a time: the whole text through the network, and the uniform number of that token inverted."""
    noise = np.random.default_rng([seed, sample]).random(limit)
    tokens, logps = [], []
    for number in noise:
        logits = model.network(torch.tensor([context + tokens])).logits[0, -1, : model.vocabulary_size].double() / temperature
        logp = torch.log_softmax(logits, 0)
        cumulative = logp.exp().cumsum(0)
        token = int((cumulative <= number * cumulative[-1]).sum())
        tokens.append(token)
        logps.append(logp[token].item())
        if token in model.end_token_ids:
            return tokens, logps, "stop"
    return tokens, logps, "length"


def literal_episode(model, prompt, seed, sample, max_tokens):
    """The three turns of `Nagging` written out, one episode alone."""
    ids, logps, mask = [], [], []
    for turn in range(3):
        drawn = (seed, sample) if turn == 0 else (turn_seed(seed, sample, turn), 0)
        tokens, own, finish = literal_turn(model, prompt + ids, *drawn, max_tokens - sum(mask))
        ids, logps, mask = ids + tokens, logps + own, mask + [True] * len(tokens)
        if finish == "length" or turn == 2:
            return ids, logps, mask, finish
        said = model.tokenizer.decode([token for token in tokens if token not in (0, 1)])
        reply = model.tokenizer("\nmore" + "x" * (len(said) % 4) + "=", add_special_tokens=False)["input_ids"]
        if max_tokens == sum(mask):
            return ids, logps, mask, "length"
        ids, logps, mask = ids + reply, logps + [0.0] * len(reply), mask + [False] * len(reply)
    raise AssertionError


@pytest.mark.parametrize("max_tokens", [60, 7])
def test_a_batch_of_episodes_is_what_an_unbatched_loop_without_a_cache_samples(max_tokens):
    model = tiny_model(scale=1.5)
    with torch.no_grad():
        groups = play(model, Nagging(), max_tokens=max_tokens)
        turns = set()
        for asked, seed, group in zip(ask(model), SEEDS, groups, strict=True):
            for sample, response in enumerate(group):
                ids, logps, mask, finish = literal_episode(model, asked.token_ids, seed, sample, max_tokens)
                assert response.completion.token_ids == ids
                assert response.completion.logprobs == pytest.approx(logps, abs=2e-5)
                assert (response.mask or [True] * len(ids)) == mask
                assert response.completion.finish_reason == finish
                turns.add(len(response.turns or [""]))
    assert len(turns) > 1 or max_tokens == 60


def test_the_same_call_gives_the_same_and_one_problem_alone_as_well():
    model = tiny_model(scale=1.5)
    first, second = (play(model, Nagging()) for _ in range(2))
    alone = play(model, Nagging(), problems=PROBLEMS[:1])
    ids = [[[response.completion.token_ids for response in group] for group in groups] for groups in (first, second, alone)]
    assert ids[0] == ids[1]
    assert ids[0][:1] == ids[2]


class Scripted(Engine):
    """Says what it is told to, in order, and keeps what it was asked. Its `resume` is the base class's."""

    name = "scripted"
    summary = "a test"
    shares_weights = True
    version = "1"

    def __init__(self, *said, context_tokens=None):
        self.said, self.calls, self.context_tokens = list(said), [], context_tokens

    def generate(self, prompts, *, group_size, sampling, seeds, progress=None):
        self.calls.append(([list(prompt) for prompt in prompts], sampling, list(seeds)))
        room = self.context_tokens or math.inf
        assert all(len(prompt) + sampling.max_tokens <= room for prompt in prompts)
        made = []
        for _ in range(len(prompts) * group_size):
            ids = self.said.pop(0)
            made.append(Completion(ids, [-0.5] * len(ids), "stop").cut(sampling.max_tokens))
        return [made[start : start + group_size] for start in range(0, len(made), group_size)]

    def load_weights(self, weights):
        raise AssertionError

    def close(self):
        return


def ids_of(model, text):
    return model.tokenizer(text, add_special_tokens=False)["input_ids"]


def test_sampled_ids_stay_as_they_are_even_where_their_text_would_be_encoded_otherwise():
    """<pad> is an id whose text is hidden; it must come back in the context of the next turn."""
    model = tiny_model()
    odd = [0, 9, 0, 1]
    engine = Scripted(odd, ids_of(model, "42"), [5, 1])
    response = play(model, Nagging(), engine=engine, group_size=1, problems=PROBLEMS[:1])[0][0]
    reply = ids_of(model, "\nmorex=")
    assert engine.calls[1][0] == [[*ids_of(model, "1+2="), *odd, *reply]]
    assert response.completion.token_ids[: len(odd) + len(reply)] == odd + reply
    assert response.mask[: len(odd) + len(reply)] == [True] * 4 + [False] * len(reply)
    assert [len(turn) for turn in response.turns][::2] == [1, 2, 1]
    assert "".join(response.turns) == response.text


def test_the_limit_counts_what_was_sampled_and_the_context_what_stands_there():
    model = tiny_model()
    five = ids_of(model, "12345")
    response = play(model, Nagging(), engine=Scripted(five, five, five), group_size=1, problems=PROBLEMS[:1], max_tokens=12)[0][
        0
    ]
    assert sum(response.mask) == 12
    assert response.completion.finish_reason == "length"
    # prompt 4 + 5 said + reply 7 leave 2 of 18; after them the episode is over, for no token more has room
    tight = play(
        model, Nagging(), engine=Scripted(five, five, context_tokens=18), group_size=1, problems=PROBLEMS[:1], max_tokens=12
    )
    assert sum(tight[0][0].mask) == 7
    assert tight[0][0].completion.finish_reason == "length"
    # a reply that leaves no room at all is not written
    tighter = play(
        model, Nagging(), engine=Scripted(five, context_tokens=16), group_size=1, problems=PROBLEMS[:1], max_tokens=12
    )
    assert tighter[0][0].mask is None
    assert tighter[0][0].completion.token_ids == five
    assert tighter[0][0].completion.finish_reason == "length"


def test_resuming_texts_of_different_room_asks_each_for_no_more_than_it_has():
    model = tiny_model()
    engine = Scripted([3] * 9, [4] * 9, [5] * 9, context_tokens=20)
    found = engine.resume([[1] * 8, [1] * 18, [1] * 3], limits=[9, 2, 4], sampling=Sampling(), seeds=[1, 2, 3])
    assert [completion.token_ids for completion in found] == [[3] * 9, [5] * 2, [4] * 4]
    assert [completion.finish_reason for completion in found] == ["stop", "length", "length"]
    assert [call[2] for call in engine.calls] == [[1, 3], [2]]
    assert model.context_tokens is None or model.context_tokens > 20


class Right(Reward):
    """1 where the last turn is the answer."""

    name = "right"
    summary = "a test"
    binary = True

    def score(self, samples):
        return [Score(float(sample.text == sample.problem.answer), "scored") for sample in samples]


def test_retry_asks_again_after_a_wrong_answer_and_pays_less_for_a_late_one():
    model = tiny_model()
    said = [ids_of(model, text) for text in ("3", "4", "5", "3", "6")]
    environment = Retry(Retry.Settings(message="no {question}"))
    engine = Scripted(*said)
    (group,) = play(model, environment, engine=engine, reward=Right(), problems=PROBLEMS[:1])
    assert [response.reward for response in group] == [1.0, 0.5, 0.0]
    assert group[0].mask is None
    assert group[1].turns == ["4", "\nno 1+2=", "3"]
    assert [response.score.status for response in group] == ["scored"] * 3
    assert not environment.keeps_rewards
    assert Retry(Retry.Settings(share=1.0)).keeps_rewards


def test_rewards_see_the_last_turn_the_sampled_ids_and_the_whole_conversation():
    model, reward = tiny_model(), Length()
    engine = Scripted(ids_of(model, "7"), ids_of(model, "88"), ids_of(model, "999"))
    play(model, Nagging(), engine=engine, reward=reward, group_size=1, problems=PROBLEMS[:1])
    (sample,) = reward.seen
    assert sample.text == "999"
    assert sample.token_ids == ids_of(model, "788999")
    assert [turn["role"] for turn in sample.turns] == ["assistant", "user", "assistant", "user", "assistant"]
    assert sample.turns[1]["content"] == "morex"


class Failing(Nagging):
    """Raises, or answers with a number."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def reply(self, episode, text):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (KeyError("gone"), "reply to turn 1 raised KeyError: 'gone'"),
        (7, "answered with int, not a text or None"),
    ],
)
def test_an_environment_that_fails_is_named_in_one_line(answer, words):
    with pytest.raises(EnvironmentFailedError) as caught:
        play(tiny_model(), Failing(answer), engine=Scripted([5, 1]), group_size=1, problems=PROBLEMS[:1])
    assert str(caught.value).startswith("environment nagging, problem a: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_progress_counts_each_episode_once_when_it_is_over():
    model, counted = tiny_model(scale=1.5), []
    respond(
        TransformersEngine(model), model.tokenizer, Length(), ask(model), group_size=3, seeds=SEEDS,
        sampling=Sampling(max_tokens=40), progress=counted.append, environment=Nagging(),
    )  # fmt: skip
    assert sum(counted) == 9


class Judging(Environment):
    """Gives a score of its own making, without the parts of the rewards."""

    name = "judging"
    summary = "judges"

    def reply(self, episode: Episode, text: str) -> str | None:
        return None

    def worth(self, episode, score):
        return Score(0.1, "won", parts={"own": 2.0})


class Parts(Length):
    """Says what its parts gave."""

    def score(self, samples):
        return [Score(1.0, "whole", parts={"length": 7.0}) for _ in samples]


def test_a_score_of_the_environment_s_own_keeps_what_the_rewards_gave():
    model = tiny_model()
    given = play(model, Judging(), engine=Scripted([5, 1], [5, 1]), group_size=2, problems=PROBLEMS[:1], reward=Parts())
    scores = [response.score for group in given for response in group]
    assert [(score.status, score.parts) for score in scores] == [("won", {"length": 7.0, "own": 2.0})] * 2
    assert {score.reward for score in scores} == {float(np.float32(0.1))}
