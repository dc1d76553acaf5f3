"""A rule that breaks its contract is named with its stage and the update, and the weights stay as they were."""

import math
import re
from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch
from training_runs import metrics_of, small_settings, train_run

from gmc.errors import GmcError
from gmc.estimators.base import Estimator
from gmc.estimators.errors import EstimatorError, EstimatorStageError
from gmc.estimators.gac import GAC
from gmc.estimators.gmc import GMC
from gmc.estimators.gradient import Gradient
from gmc.estimators.registry import list_estimators
from gmc.gradients.rule_calls import RuleCalls
from gmc.models import load_model
from gmc.store.checkpoints import load_newest
from gmc.store.run_directory import RunDirectory
from gmc.testing import check_estimator, random_batch
from gmc.training.opening import open_session
from gmc.training.update import NonFiniteError

SMALL = ["rollout.prompts=2", "rollout.max_tokens=16", "delay=0", "train.updates=2", "train.checkpoint_every=1"]


class Sound(Estimator):
    """Keeps the contract: REINFORCE."""

    name = "sound"
    summary = formula = reference = "text"
    scope = "token"
    bounded = False
    needs = frozenset()

    def objective(self, batch):
        return batch.advantages_B1 * batch.logp_BT


def broken(stage, result):
    """The sound rule with one stage replaced; `result` takes the stage's arguments."""
    members = {"name": "broken", "__module__": __name__, stage: lambda self, *given: result(*given)}
    return type("Broken", (Sound,), members)()


def failing(*_):
    raise KeyError("weights")


def half(gradient):
    return Gradient(gradient.tensors[:-1])


def turned(gradient):
    return Gradient([tensor.reshape(-1) for tensor in gradient.tensors])


def doubled(gradient):
    return Gradient([tensor.double() for tensor in gradient.tensors])


def emptied(gradient):
    gradient.tensors.clear()
    return gradient


WRONG = [
    ("advantages", failing, "raised KeyError: 'weights'"),
    ("advantages", lambda batch: None, "returned None, not a tensor of shape (2, 4) (float32, cpu)"),
    ("advantages", lambda batch: batch.rewards_PG.tolist(), "returned a value of type list"),
    ("advantages", lambda batch: batch.rewards_PG.reshape(-1), "of shape (8,)"),
    ("advantages", lambda batch: batch.rewards_PG.mean(1, keepdim=True), "of shape (2, 1)"),
    ("advantages", lambda batch: batch.rewards_PG.long(), "(int64, cpu)"),
    ("advantages", lambda batch: batch.lag_BT, "raised UndeclaredNeedError"),
    ("objective", failing, "raised KeyError"),
    ("objective", lambda batch: None, "returned None"),
    ("objective", lambda batch: batch.logp_BT.sum(), "of shape () (float32, cpu), not a tensor of shape (8, "),
    ("objective", lambda batch: batch.logp_BT.sum(1, keepdim=True), "the shape of batch.logp_BT"),
    ("objective", lambda batch: batch.logp_BT.detach(), "it is detached"),
    ("objective", lambda batch: torch.ones_like(batch.logp_BT, requires_grad=True), "does not depend on batch.logp_BT"),
    ("gradient", failing, "raised KeyError"),
    ("gradient", lambda gradient: None, "returned None, not a Gradient or SKIP"),
    ("gradient", lambda gradient: gradient.tensors, "returned a value of type list"),
    ("gradient", half, "tensors, not the"),
    ("gradient", emptied, "returned 0 tensors"),
    ("gradient", turned, "as tensor 0, not a tensor of shape"),
    ("gradient", doubled, "(float64, cpu)"),
    ("learning_rate_scale", failing, "raised KeyError"),
    ("learning_rate_scale", lambda batch: None, "returned None, not a finite number"),
    ("learning_rate_scale", lambda batch: math.nan, "returned nan"),
    ("learning_rate_scale", lambda batch: -0.5, "returned -0.5, which is negative"),
    ("learning_rate_scale", lambda batch: torch.tensor(1.0), "returned a tensor of shape ()"),
    ("metrics", failing, "raised KeyError"),
    ("metrics", lambda batch: None, "returned None, not a dict"),
    ("metrics", lambda batch: [1.0], "returned a value of type list, not a dict"),
    ("metrics", lambda batch: {"share": math.inf}, "returned inf as metric 'share'"),
    ("metrics", lambda batch: {"share": torch.tensor(1.0)}, "as metric 'share', not a finite number"),
    ("metrics", lambda batch: {3: 1.0}, "the key 3, which is not text"),
]


@pytest.fixture
def model_of(monkeypatch):
    """Puts a rule into training in place of the registered one; returns the model that it is about to train."""

    def put(rule):
        model = load_model("embedded")
        monkeypatch.setattr("gmc.training.opening.build_model", lambda *_: model)
        monkeypatch.setattr("gmc.training.opening.build_rule", lambda *_: rule)
        return model

    return put


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    """What trains, and the groups of its first update."""
    path, settings = tmp_path_factory.mktemp("sampled") / "run", small_settings(*SMALL)
    directory = RunDirectory.for_training(path, model="embedded", seed=0, resume=False, overwrite=False)
    with ExitStack() as resources:
        resources.enter_context(directory.lock())
        directory.save_settings("train", settings)
        session = open_session(directory, settings, resources)
        session.source.launch(0, lambda responses: None)
        yield session.updater, session.source.take(0)


@pytest.mark.train
@pytest.mark.parametrize(("stage", "result", "message"), WRONG)
def test_a_stage_that_fails_names_rule_stage_and_update_and_changes_no_weight(sampled, stage, result, message):
    updater, groups = sampled
    before = {name: value.clone() for name, value in updater.model.weights().items()}
    with pytest.raises(EstimatorStageError) as caught:
        replace(updater, estimator=broken(stage, result)).run(groups, 0)
    text = str(caught.value)
    assert re.match(rf"estimator broken \(module test_rule_calls\), update 0: {stage} (raised|returned) ", text), text
    assert message in text
    assert "the update was not applied" in text
    assert "gmc.testing.check_estimator" in text
    assert "\n" not in text
    assert caught.value.__cause__ is not None
    assert caught.value.exit_code == 1, "a run that stopped, while a wrong setting is wrong usage"
    assert all(torch.equal(value, before[name]) for name, value in updater.model.weights().items())


@pytest.mark.unit
@pytest.mark.parametrize(("stage", "result"), [(stage, result) for stage, result, _ in WRONG if stage != "gradient"])
def test_check_estimator_finds_what_training_refuses(stage, result):
    with pytest.raises(AssertionError, match="breaks the estimator contract"):
        check_estimator(type(broken(stage, result)))


@pytest.mark.train
def test_a_run_that_such_a_rule_ends_goes_on_from_its_last_checkpoint(tmp_path, model_of):
    path = tmp_path / "run"
    model_of(broken("objective", lambda batch: batch.logp_BT if batch.update == 0 else batch.logp_BT.detach()))
    with pytest.raises(EstimatorStageError, match="update 1: objective returned"):
        train_run(path, small_settings(*SMALL))
    assert len(metrics_of(path)) == 1
    model_of(Sound())
    assert train_run(path, small_settings(*SMALL), resume=True)["finished"]


@pytest.mark.train
def test_the_sound_rule_trains_and_passes(tmp_path, model_of):
    check_estimator(Sound)
    model_of(Sound())
    assert train_run(tmp_path / "run", small_settings(*SMALL))["finished"]


@pytest.mark.train
@pytest.mark.parametrize(
    ("state", "message"),
    [
        (failing, "state_dict raised KeyError: 'weights'"),
        (lambda: None, "state_dict returned None, not a dict"),
        (lambda: {"count": 3}, "state_dict returned a value of type int as 'count', not a tensor"),
        (lambda: {3: torch.zeros(1)}, "the key 3"),
    ],
)
def test_state_that_cannot_be_kept_writes_no_checkpoint(tmp_path, model_of, state, message):
    model_of(broken("state_dict", state))
    with pytest.raises(EstimatorStageError, match=re.escape(message)) as caught:
        train_run(tmp_path / "run", small_settings(*SMALL))
    assert "estimator broken (module test_rule_calls), update 1: " in str(caught.value)
    assert "no checkpoint was written" in str(caught.value)
    assert load_newest(tmp_path / "run" / "checkpoints") is None


@pytest.mark.train
@pytest.mark.parametrize("error", [KeyError("count"), ValueError("sound keeps no state"), TypeError("two\nlines")])
def test_state_that_is_not_taken_back_leaves_the_run_as_it_is(tmp_path, model_of, error):
    path = tmp_path / "run"
    model_of(Sound())
    train_run(path, small_settings(*SMALL))

    def refuse(state):
        raise error

    model_of(broken("load_state_dict", refuse))
    with pytest.raises(EstimatorStageError, match=r"update 2: load_state_dict raised .*Install the version") as caught:
        train_run(path, small_settings(*SMALL, "train.updates=3"), resume=True)
    assert "\n" not in str(caught.value)
    assert len(metrics_of(path)) == 2
    model_of(Sound())
    assert train_run(path, small_settings(*SMALL, "train.updates=3"), resume=True)["finished"]


@pytest.mark.unit
def test_a_rule_uses_the_gradient_when_it_has_a_stage_of_its_own():
    assert RuleCalls(GAC(), 0).uses_gradient is True
    assert RuleCalls(GMC(), 0).uses_gradient is False


@pytest.mark.unit
def test_a_capping_rule_tells_its_threshold_and_any_other_has_the_default():
    batch = random_batch(seed=0)
    assert RuleCalls(GMC(), 0).epsilon(batch, 0.5) == 0.28
    assert RuleCalls(Sound(), 0).epsilon(batch, 0.5) == 0.5
    assert RuleCalls(GMC(GMC.Settings(epsilon=-0.5)), 0).epsilon(batch, 0.5) == -0.5


@pytest.mark.unit
def test_a_threshold_whose_cap_is_not_positive_is_refused():
    rule = type("Broken", (GMC,), {"epsilon": lambda self, batch: -1.0})()
    with pytest.raises(EstimatorStageError, match=r"epsilon returned -1.0, which is not above -1"):
        RuleCalls(rule, 0).epsilon(random_batch(), 0.5)


@pytest.mark.unit
def test_the_package_and_version_are_named_and_so_is_a_wrapped_rule():
    batch = random_batch(seed=0)
    rule = GMC()
    rule.advantages = failing
    version = next(found.distribution for found in list_estimators() if found.name == "gmc")
    with pytest.raises(EstimatorStageError, match=re.escape(f"estimator gmc (package {version}), update 7: advantages")):
        RuleCalls(rule, 7).advantages(batch)
    composed = GAC()
    composed.base = rule
    with pytest.raises(EstimatorStageError, match=re.escape(f"estimator gac (package {version}) over gmc (package {version})")):
        RuleCalls(composed, 7).advantages(batch)


@pytest.mark.unit
@pytest.mark.parametrize(
    "error", [GmcError("told"), EstimatorError("told"), KeyboardInterrupt(), torch.OutOfMemoryError("full")]
)
def test_errors_that_speak_for_themselves_pass_through(error):
    def stop(batch):
        raise error

    with pytest.raises(type(error)) as caught:
        RuleCalls(broken("advantages", stop), 0).advantages(random_batch(seed=0))
    assert caught.value is error


@pytest.mark.train
def test_a_gradient_that_is_not_finite_is_not_blamed_on_the_rule_that_looks_at_it(tmp_path, model_of, monkeypatch):
    """Dot products of infinite gradients raise in the standard library; the rule is not at fault."""
    model_of(GAC())
    monkeypatch.setattr(
        "gmc.training.update.model_gradient",
        lambda parameters, *rest: Gradient([torch.full_like(p, math.inf) for p in parameters.tensors]),
    )
    with pytest.raises(NonFiniteError, match="the gradient of estimator gac is not finite"):
        train_run(tmp_path / "run", small_settings(*SMALL))
