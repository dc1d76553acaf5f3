"""One architecture through everything: rollouts, one update, checkpoint, policy, evaluation, greedy decoding."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import gmc
from gmc.engines.base import Sampling
from gmc.engines.transformers import TransformersEngine
from gmc.errors import GmcError
from gmc.grading import Grader
from gmc.grading.grade import Verdict
from gmc.models import LanguageModel, load_model, load_tokenizer
from gmc.scoring.scorer import Scorer
from gmc.store.policies import newest_policy
from tests.zoo.table import SIZES, Architecture

SCALE = 3.0
"""Random weights times this: next-token distributions are then far from uniform, and a wrong cache shows."""

PROMPTS = [[30, 40, 50, 60, 70, 80, 90], [31, 41], [32, 42, 52, 62], [33, 43, 53, 63]]
"""Of unequal lengths."""

TOLERANCE = 1e-3


@dataclass(frozen=True)
class Outcome:
    """What became of an architecture. decoding, scoring: the ways that were chosen; context: positions usable, of how many;
    refusal: the one line that refused it, "" when all worked."""

    name: str
    model_type: str
    group: str
    network: str
    decoding: str = ""
    scoring: str = ""
    context: str = ""
    refusal: str = ""


def write_model(architecture: Architecture, folder: Path) -> PreTrainedModel:
    """A random network of this architecture in a folder, with the embedded model's tokenizer and its head padded beyond it."""
    torch.manual_seed(0)
    settings = {**SIZES, **architecture.changes}
    config = CONFIG_MAPPING[architecture.model_type](**{key: value for key, value in settings.items() if value is not None})
    network: PreTrainedModel = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.mul_(SCALE)
    network.save_pretrained(folder)
    load_tokenizer("embedded").save_pretrained(folder)
    return network


def drive(architecture: Architecture, folder: Path) -> Outcome:
    """Everything, in `folder`. Raises `AssertionError` for a wrong number; what gmc refuses in one line is an outcome."""
    network = write_model(architecture, folder / "model")
    own = Outcome(architecture.name, architecture.model_type, architecture.group, type(network).__name__)
    try:
        model = load_model(folder / "model")
        engine = TransformersEngine(model)
    except GmcError as error:
        return Outcome(**asdict(own) | {"refusal": str(error).replace(str(folder / "model"), "MODEL")})
    scorer = Scorer(model, token_budget=64)
    _check_scores(model, engine, scorer)
    _check_run(folder)
    built = getattr(network.config.get_text_config(), "max_position_embeddings", None)
    chosen = {
        "decoding": engine.decoding,
        "scoring": "packed, prompts shared" if scorer.shares_prompts else "its own forward, one response at a time",
        "context": "no limit" if model.context_tokens is None else f"{model.context_tokens} of {built}",
    }
    return Outcome(**asdict(own) | chosen)


def _check_scores(model: LanguageModel, engine: TransformersEngine, scorer: Scorer) -> None:
    """Sampled tokens' log-probs of engine and scorer are those of the stock forward, one unpadded text at a time."""
    sampling = Sampling(temperature=1.0, max_tokens=12)
    groups = engine.generate(PROMPTS, group_size=2, sampling=sampling, seeds=list(range(len(PROMPTS))))
    responses = [[completion.token_ids for completion in group] for group in groups]
    scores = scorer.score(PROMPTS, responses)
    rows = [(prompt, completion) for prompt, group in zip(PROMPTS, groups, strict=True) for completion in group]
    for (prompt, completion), logp_T in zip(rows, scores.logp_BT, strict=True):
        length = len(completion.token_ids)
        wanted_T = _stock_logp(model.network, prompt, completion.token_ids, model.vocabulary_size)
        for name, found in (("engine", torch.tensor(completion.logprobs)), ("scorer", logp_T[:length])):
            difference = float((found - wanted_T).abs().max())
            assert difference <= TOLERANCE, f"{model.source}: {name} differs from the stock forward by {difference:.2g}"


@torch.no_grad()
def _stock_logp(network: PreTrainedModel, prompt: list[int], response: list[int], size: int) -> torch.Tensor:
    logits_TV = network(input_ids=torch.tensor([prompt + response]), use_cache=False).logits[0, len(prompt) - 1 : -1, :size]
    return logits_TV.log_softmax(-1).gather(1, torch.tensor(response)[:, None])[:, 0]


def _check_run(folder: Path) -> None:
    run, settings = folder / "run", {"train.keep_checkpoints": 2, "optimizer.learning_rate": 1e-2}
    small = {"model": str(folder / "model"), "problems": "arithmetic", "prompts": 2, "group_size": 4, "max_tokens": 12}
    with patch.object(Grader, "grade_many", _alternating):
        gmc.rollout(run, batches=1, **small)
        result = gmc.train(run, delay=0, updates=1, settings=settings)
    assert result.metrics["ratio/log_rho_max"] == 0.0, "the same weights score alike at delay 0"
    assert result.metrics["reward/mean"] == 0.5
    assert 0 < result.metrics["optimizer/gradient_norm"] < float("inf")
    assert (run / "checkpoints" / "u000001" / "READY").exists()
    policy = newest_policy(run / "policies")
    assert policy is not None
    trained = load_model(policy)
    before = load_model(folder / "model").weights()
    assert any(not torch.equal(tensor, before[name]) for name, tensor in trained.weights().items()), "an update moves weights"
    stock = AutoModelForCausalLM.from_pretrained(policy).eval()
    _check_greedy(trained, stock)
    gmc.evaluate(run, n=1, limit=3, max_tokens=8)
    scores = [json.loads(path.read_text()) for path in (run / "evals").glob("*.json")]
    assert scores, "an evaluation leaves a result"


def _check_greedy(model: LanguageModel, stock: PreTrainedModel) -> None:
    """Greedy decoding in one batch gives what a plain loop over the published network gives for each prompt alone."""
    sampling = Sampling(temperature=0.0, max_tokens=10)
    engine = TransformersEngine(model)
    found = engine.generate(PROMPTS, group_size=1, sampling=sampling, seeds=[0] * len(PROMPTS))
    for prompt, [completion] in zip(PROMPTS, found, strict=True):
        assert completion.token_ids == _greedy(stock, prompt, model), f"{model.source}: greedy decoding of {prompt}"


@torch.no_grad()
def _greedy(network: PreTrainedModel, prompt: list[int], model: LanguageModel) -> list[int]:
    said: list[int] = []
    while len(said) < 10 and not (said and said[-1] in model.end_token_ids):
        logits_TV = network(input_ids=torch.tensor([prompt + said]), use_cache=False).logits[0, :, : model.vocabulary_size]
        said.append(int(logits_TV[-1].argmax()))
    return said


def _alternating(grader: Grader, pairs: list[tuple[str, str]], **flags: list[bool]) -> list[Verdict]:
    right, wrong = Verdict(True, "correct", "1", "text"), Verdict(False, "incorrect", "0", "text")
    return [(right, wrong)[index % 2] for index in range(len(pairs))]
