"""Settings in force: nothing is left open, and each value tells where it came from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmc.config.layers import FIELDS, Layers, flatten, unflatten
from gmc.errors import UsageError
from gmc.estimators.batch import Need
from gmc.estimators.gmc import GMC
from gmc.estimators.registry import list_estimators
from gmc.resolving.resolve import resolve_settings

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("rule", [found.name for found in list_estimators() if found.error is None])
def test_nothing_is_left_open_for_any_rule(rule):
    settings = resolve_settings(flags={"estimator.name": rule})
    values = dict(flatten(settings.model_dump(mode="json")))
    assert {key for key in values if not key.startswith(("estimator.", "eval.samples."))} == FIELDS.keys() - {
        "estimator",
        "eval.samples",
    }
    own = {key for key, value in values.items() if key.startswith("estimator.") and value is None}  # a rule's "off"
    assert not [key for key, value in values.items() if (value is None and key not in own) or value == "auto"]
    assert values.keys() == settings.origins.keys()
    assert settings.train.normalizer == next(found for found in list_estimators() if found.name == rule).cls().normalizer


@pytest.mark.parametrize(("template", "form"), [("chat-v1", "messages"), ("arithmetic-v1", "text")])
def test_a_reward_function_gets_messages_under_a_chat_template_alone(template, form):
    resolved = resolve_settings(assignments=[f"problems.template={template}"])
    assert (resolved.reward.form, resolved.origins["reward.form"]) == (form, resolve_settings().origins["reward.form"])
    assert resolve_settings(assignments=[f"problems.template={template}", "reward.form=text"]).reward.form == "text"


def test_each_value_says_where_it_came_from(tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text("[optimizer]\nbeta1 = 0.8\n[train]\nupdates = 9\n")
    flags = {"rollout.prompts": 4, "train.publish_every": 3}
    settings = resolve_settings(
        recipe=str(recipe), flags=flags, flag_names={"rollout.prompts": "--prompts"}, assignments=["train.updates=8"]
    )
    wanted = {
        "optimizer.beta1": f"recipe {recipe}",
        "train.updates": "--set",
        "rollout.prompts": "flag --prompts",
        "train.publish_every": "argument",
        "optimizer.beta2": "default",
        "rollout.max_tokens": "model",
        "problems.template": "problems",
        "estimator.epsilon": "rule",
        "train.normalizer": "rule",
        "eval.samples.arithmetic": "benchmark",
        "model.compute_dtype": "device",
    }
    assert {key: settings.origins[key] for key in wanted} == wanted


def test_the_hash_tells_values_apart_and_not_their_origin():
    said = resolve_settings(flags={"train.updates": 400, "rollout.max_tokens": 64})
    assert said.hash == resolve_settings().hash
    assert said.hash != resolve_settings(flags={"train.updates": 401}).hash
    assert said.hash != resolve_settings(assignments=["estimator.epsilon=0.2"]).hash


@given(st.recursive(st.integers(), lambda inner: st.dictionaries(st.text("ab", min_size=1), inner, min_size=1), max_leaves=9))
def test_unflatten_undoes_flatten(tree):
    tree = {"root": tree}
    assert unflatten(dict(flatten(tree))) == tree


@pytest.mark.parametrize("said", [[], ["rollout.entropies=false"], ["rollout.entropies=true"]])
def test_a_rule_that_needs_entropies_has_them_switched_on(said, monkeypatch):
    assert not resolve_settings().rollout.entropies
    monkeypatch.setattr(GMC, "needs", GMC.needs | {Need.BEHAVIOR_ENTROPY})
    settings = resolve_settings(assignments=said)
    assert settings.rollout.entropies
    assert settings.origins["rollout.entropies"] == ("--set" if said == ["rollout.entropies=true"] else "rule")


def test_a_rule_that_weighs_the_engine_against_the_trainer_is_refused_where_the_trainers_log_probs_are_left_out(monkeypatch):
    assert resolve_settings(assignments=["rollout.logprobs=engine"]).rollout.logprobs == "engine"
    monkeypatch.setattr(GMC, "needs", GMC.needs | {Need.ENGINE_LOGP})
    assert resolve_settings().rollout.logprobs == "trainer"
    with pytest.raises(UsageError, match="use --logprobs trainer"):
        resolve_settings(assignments=["rollout.logprobs=engine"])


def test_a_later_name_drops_the_settings_of_an_earlier_rule_in_any_order_of_a_file():
    layers = Layers()
    layers.set_all({"estimator": {"name": "gmc", "epsilon": 0.1}}, "one")
    layers.set_all({"estimator": {"base": "tic", "c_low": 0.1, "name": "gac"}}, "two")
    assert layers.values == {"estimator.name": "gac", "estimator.base.name": "tic", "estimator.c_low": 0.1}
