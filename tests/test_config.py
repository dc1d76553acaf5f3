"""Settings: layers, unknown keys, recipes."""

import pytest

from gmc.config.layers import Layers, lay
from gmc.config.recipes import recipes_directory
from gmc.errors import UsageError
from gmc.estimators.registry import build_estimator, list_estimators
from gmc.resolving.resolve import resolve_settings

pytestmark = pytest.mark.unit


def earlier(tree):
    """What an earlier command of the run earlier."""
    layers = Layers()
    layers.set_all(tree, "run: default")
    return layers


RECIPES = sorted(path.stem for path in recipes_directory().glob("*.toml"))


def test_layers_win_in_order(tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text('seed = 3\n[train]\nupdates = 10\n[estimator]\nname = "tic"\nepsilon = 0.5\n')
    settings = resolve_settings(
        earlier=earlier({"seed": 1, "rollout": {"prompts": 4}}),
        recipe=str(recipe),
        flags={"train.updates": 20, "delay": None},
        assignments=["estimator.epsilon=0.4"],
    )
    assert (settings.seed, settings.rollout.prompts, settings.train.updates) == (3, 4, 20)
    assert (settings.estimator["name"], settings.estimator["epsilon"]) == ("tic", 0.4)
    assert settings.delay == "64"


def test_naming_another_rule_drops_the_settings_of_the_one_before():
    said = earlier({"estimator": {"name": "gmc", "epsilon": 0.5}})
    assert "epsilon" not in resolve_settings(earlier=said, flags={"estimator.name": "grpo"}).estimator
    assert resolve_settings(earlier=said, flags={"estimator.name": "tic"}).estimator["epsilon"] == 0.28
    assert resolve_settings(earlier=said, flags={"estimator.name": "gmc"}).estimator["epsilon"] == 0.5


def test_rules_compose_through_dotted_keys():
    settings = resolve_settings(
        flags={"estimator.name": "gac"}, assignments=["estimator.base=gmc", "estimator.base.epsilon=0.2", "estimator.c_low=0.1"]
    )
    gmc = {"name": "gmc", "baseline": "loo", "epsilon": 0.2, "epsilon_k": 0.0733, "epsilon_limit": False}
    assert settings.estimator == {"name": "gac", "base": gmc, "c_low": 0.1, "c_high": 0.3, "projection": "full"}


def test_the_default_rule_takes_settings_without_being_named():
    estimator = resolve_settings(assignments=["estimator.epsilon=0.4"]).estimator
    assert (estimator["name"], estimator["epsilon"]) == ("gmc", 0.4)


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("rollout.groupsize=3", ["rollout.groupsize", "did you mean rollout.group_size"]),
        ("rollout.group_size=1", ["rollout.group_size = 1", "at least 2"]),
        ("rollout.temperature=0", ["rollout.temperature = 0", "give at least 0.001"]),
        ("train.normalizer=mean", ["train.normalizer", "seq-mean-token-sum-norm"]),
        ("optimizer=3", ["optimizer = 3"]),
        ("updates", ["--set updates", "key=value"]),
        ("=3", ["key=value"]),
    ],
)
def test_a_bad_assignment_is_one_line_that_names_it(assignment, words):
    with pytest.raises(UsageError) as error:
        resolve_settings(assignments=[assignment])
    message = str(error.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_unknown_recipe_lists_the_known_ones():
    with pytest.raises(UsageError, match="lab-delay-sweep"):
        resolve_settings(recipe="lab-delay")
    with pytest.raises(UsageError, match=r"missing\.toml: no such file"):
        resolve_settings(recipe="missing.toml")


def test_a_recipe_with_an_unknown_key_or_bad_toml_is_refused_by_file(tmp_path):
    recipe = tmp_path / "bad.toml"
    recipe.write_text("[train]\nupdate = 3\n")
    with pytest.raises(UsageError, match=r"bad\.toml.*train\.update;.*train\.updates"):
        resolve_settings(recipe=str(recipe))
    recipe.write_text("[train\n")
    with pytest.raises(UsageError, match=r"bad\.toml: not a TOML file.*line 1"):
        resolve_settings(recipe=str(recipe))


@pytest.mark.parametrize("name", RECIPES)
def test_every_shipped_recipe_resolves_and_builds_its_rule(name):
    settings = resolve_settings(recipe=name)
    rest = {key: value for key, value in settings.estimator.items() if key != "name"}
    assert build_estimator(settings.estimator["name"], rest).name in {found.name for found in list_estimators()}
    assert settings.optimizer.learning_rate is not None


def test_the_group_sizes_of_the_lab_are_compared_at_one_budget():
    text = (recipes_directory() / "lab-group-size.toml").read_text("utf-8")
    assert "--group-size $size --prompts $((64 / size))" in text
    sizes = [int(size) for size in text.split("for size in ")[1].split(";")[0].split()]
    assert sizes == [2, 4, 8, 16, 32]
    assert all(64 % size == 0 for size in sizes)
    settings = resolve_settings(recipe="lab-group-size")
    assert (settings.rollout.prompts * settings.rollout.group_size, settings.delay) == (64, "ramp:64")


def test_paper_recipes_hold_the_stated_values():
    settings = resolve_settings(recipe="paper-qwen3-1.7b-fixed-delay")
    assert (settings.rollout.prompts, settings.rollout.group_size, settings.rollout.max_tokens) == (8, 8, 4096)
    assert (settings.optimizer.name, settings.optimizer.learning_rate, settings.optimizer.schedule) == (
        "adamw8bit",
        1e-6,
        "cosine",
    )
    assert settings.estimator["epsilon"] == 0.28
    assert resolve_settings(recipe="gac-qwen3-1.7b-s16").optimizer.weight_decay == 0.01


def test_model_dependent_defaults_are_filled_in():
    small, large = resolve_settings(), resolve_settings(flags={"model.source": "some/model"})
    assert (small.optimizer.learning_rate, small.rollout.max_tokens) == (4e-4, 64)
    assert (large.optimizer.learning_rate, large.rollout.max_tokens) == (1e-6, 4096)


def test_a_number_is_a_fixed_delay():
    assert resolve_settings(assignments=["delay=3"]).delay == "3"


@pytest.mark.parametrize("setting", ["top_p=0.9", "top_k=5", "min_p=0.1", "repetition_penalty=1.1"])
def test_truncated_sampling_is_refused_for_training(setting):
    settings = resolve_settings(assignments=[f"rollout.{setting}"])
    with pytest.raises(UsageError, match=r"rollout\." + setting.partition("=")[0] + ".*kept probability mass"):
        settings.rollout.sampling(())


@pytest.mark.parametrize("order", [1, -1])
def test_naming_a_base_and_setting_it_work_in_either_order(order):
    assignments = ["estimator.name=gac", *["estimator.base=gmc", "estimator.base.epsilon=0.2"][::order]]
    base = resolve_settings(assignments=assignments).estimator["base"]
    assert (base["name"], base["epsilon"]) == ("gmc", 0.2)


@pytest.mark.parametrize(
    ("setting", "device", "expected"),
    [
        ("auto", "cpu", "float32"),
        ("auto", "cuda:1", "bfloat16"),
        ("float32", "cuda", "float32"),
        ("bfloat16", "cpu", "bfloat16"),
    ],
)
def test_the_dtype_of_products_follows_the_device_unless_it_is_set(setting, device, expected):
    settings = resolve_settings(assignments=[f"model.compute_dtype={setting}", f"model.device={device}"])
    assert settings.model.compute_dtype == expected


def test_text_of_another_form_is_answered_with_what_it_should_be():
    with pytest.raises(UsageError) as caught:
        lay(assignments=["rollout.devices=['cuda']"])
    assert "rollout.devices.0 = 'cuda': not understood; it is GPUs that sample" in str(caught.value)
    assert "pattern" not in str(caught.value)
