"""The registry, over real entry points: distributions written to disk as an installer would leave them."""

import subprocess
import sys
from pathlib import Path

import pytest

from gmc.estimators import registry
from gmc.estimators.errors import (
    BrokenEstimatorError,
    DuplicateEstimatorError,
    EstimatorError,
    EstimatorSettingError,
    UnknownEstimatorError,
)

GOOD = """
from gmc.estimators.grpo import GRPO
class Rule(GRPO):
    name = "{name}"
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A function that puts a distribution with one entry point on the import path."""

    def add(distribution: str, name: str, source: str, attribute: str = "Rule") -> None:
        folder = tmp_path / distribution
        module = distribution.replace("-", "_") + "_module"
        info = folder / f"{distribution.replace('-', '_')}-2.1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 2.1\n")
        (info / "entry_points.txt").write_text(f"[gmc.estimators]\n{name} = {module}:{attribute}\n")
        (folder / f"{module}.py").write_text(source.format(name=name))
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, module, raising=False)

    return add


@pytest.mark.unit
def test_built_in_rules_are_registered_like_any_plugin():
    found = {one.name: one for one in registry.list_estimators()}
    assert {
        "gmc",
        "tic",
        "grpo",
        "is",
        "truncated",
        "group-truncated",
        "snis",
        "token-gmc",
        "gac",
        "vcpo",
        "a3po",
        "decoupled-ppo",
    } <= set(found)
    assert all(
        one.distribution.startswith("gmc-rl ") and one.error is None for one in found.values() if one.name in ("gmc", "gac")
    )
    assert registry.load_estimator("gmc").name == "gmc"


@pytest.mark.unit
def test_a_plugin_is_found_and_built(install):
    install("good-plugin", "fresh", GOOD)
    rule = registry.build_estimator("fresh", {"epsilon_low": 0.1})
    assert rule.name == "fresh"
    assert rule.settings.epsilon_low == 0.1
    assert ("fresh", "good-plugin 2.1") in [(one.name, one.distribution) for one in registry.list_estimators()]


@pytest.mark.unit
def test_an_unknown_name_lists_what_was_found_and_where(install):
    install("good-plugin", "fresh", GOOD)
    with pytest.raises(UnknownEstimatorError) as caught:
        registry.load_estimator("frsh")
    message = str(caught.value)
    assert "'frsh'" in message
    assert "Did you mean fresh?" in message
    assert "fresh (from good-plugin 2.1)" in message
    assert "gmc" in message
    assert "\n" not in message


@pytest.mark.unit
@pytest.mark.parametrize(
    ("source", "attribute", "cause"),
    [
        ("import a_module_that_is_not_there", "Rule", "ModuleNotFoundError"),
        ("raise SystemError('half installed')", "Rule", "SystemError: half installed"),
        ("x = 1", "Rule", "AttributeError"),
        ("Rule = 3", "Rule", "is not a subclass"),
        ("class Rule: pass", "Rule", "is not a subclass"),
        ("def f(:", "Rule", "SyntaxError"),
        (GOOD.replace("{name}", "another"), "Rule", "calls itself 'another'"),
    ],
)
def test_a_broken_plugin_is_listed_with_its_cause_and_stops_only_who_asks_for_it(install, source, attribute, cause):
    install("broken-plugin", "broken", source, attribute)
    (listed,) = [one for one in registry.list_estimators() if one.name == "broken"]
    assert listed.estimator is None
    assert cause in listed.error
    assert registry.load_estimator("gmc").name == "gmc"
    with pytest.raises(BrokenEstimatorError) as caught:
        registry.load_estimator("broken")
    assert cause in str(caught.value)
    assert "broken-plugin 2.1" in str(caught.value)


@pytest.mark.unit
def test_the_import_error_stays_attached_as_the_cause(install):
    install("broken-plugin", "broken", "import a_module_that_is_not_there")
    with pytest.raises(BrokenEstimatorError) as caught:
        registry.load_estimator("broken")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


@pytest.mark.unit
def test_two_distributions_of_one_name_are_both_named(install):
    install("plugin-one", "twice", GOOD)
    install("plugin-two", "twice", GOOD)
    with pytest.raises(DuplicateEstimatorError, match=r"plugin-one 2\.1 and plugin-two 2\.1"):
        registry.load_estimator("twice")
    listed = [one for one in registry.list_estimators() if one.name == "twice"]
    assert [one.distribution for one in listed] == ["plugin-two 2.1", "plugin-one 2.1"] or len(listed) == 2
    assert all("plugin-one 2.1" in one.error and "plugin-two 2.1" in one.error for one in listed)


@pytest.mark.unit
def test_a_plugin_cannot_quietly_replace_a_built_in_rule(install):
    install("impostor", "gmc", GOOD)
    with pytest.raises(DuplicateEstimatorError, match=r"impostor 2\.1"):
        registry.load_estimator("gmc")


@pytest.mark.unit
def test_looking_at_one_rule_does_not_import_the_others(install):
    install("slow-plugin", "slow", "raise RuntimeError('imported')")
    registry.load_estimator("gmc")
    assert "slow_plugin_module" not in sys.modules


@pytest.mark.unit
def test_every_error_is_a_usage_error():
    assert EstimatorError.exit_code == 2
    assert issubclass(EstimatorError, ValueError)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("name", "settings", "parts"),
    [
        ("gmc", {"epsilon": -1}, ["estimator.epsilon", "-1 ", "> -1"]),
        ("tic", {"epsilon": -0.1}, ["estimator.epsilon", "-0.1 ", "≥ 0"]),
        ("gmc", {"epsilon": float("nan")}, ["estimator.epsilon", "nan"]),
        ("gmc", {"epsilon": float("inf")}, ["estimator.epsilon", "inf"]),
        ("gmc", {"epsilon": "automatic"}, ["estimator.epsilon", "'automatic'", "auto"]),
        ("gmc", {"epsilom": 0.1}, ["estimator.epsilom", "no such setting", "epsilon"]),
        ("grpo", {"epsilon_low": 1}, ["estimator.epsilon_low", "1 ", "< 1"]),
        ("grpo", {"epsilon_low": 0}, ["estimator.epsilon_low", "0 ", "> 0"]),
        ("grpo", {"epsilon_high": 0}, ["estimator.epsilon_high", "0 ", "> 0"]),
        ("vcpo", {"c": 0.5}, ["estimator.c", "0.5", "≥ 1"]),
        ("vcpo", {"lr_rule": "cubic"}, ["estimator.lr_rule", "'cubic'", "sqrt", "linear"]),
        ("decoupled-ppo", {"anchor_lag": 0}, ["estimator.anchor_lag", "0", "≥ 1"]),
        ("gac", {"base": {"name": "grpo", "epsilon_low": 2}}, ["estimator.base.epsilon_low", "2", "< 1"]),
        ("gac", {"c_low": 0.5, "c_high": 0.3}, ["estimator", "c_low", "c_high"]),
        ("gac", {"base": 3}, ["estimator.base", "3"]),
    ],
)
def test_a_refused_setting_is_named_with_its_value_and_range(name, settings, parts):
    with pytest.raises(EstimatorSettingError) as caught:
        registry.build_estimator(name, settings)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.mark.unit
@pytest.mark.parametrize("name", [5, True, None, 1.5, [1], {"a": 1}, ["gmc"]])
def test_a_name_that_is_no_text_is_refused_in_one_line(name):
    for look in (registry.load_estimator, registry.build_estimator):
        with pytest.raises(UnknownEstimatorError, match="no estimator is named") as caught:
            look(name)
        assert repr(name) in str(caught.value)
        assert "gmc" in str(caught.value)
        assert "\n" not in str(caught.value)


BODY = """
from gmc.estimators.base import Estimator, EstimatorSettings
from pydantic import model_validator
class Rule(Estimator):
    name = "{{name}}"
{body}
    def objective(self, batch):
        return batch.logp_BT
"""
VALIDATOR = """
    class Settings(EstimatorSettings):
        @model_validator(mode="before")
        @classmethod
        def _check(cls, value):
            return value["missing"]
"""


@pytest.mark.unit
@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("    def __init__(self, settings=None):\n        self.cap = settings.cap", "AttributeError"),
        ("    def __init__(self, settings=None):\n        self.cap = dict()['cap']", "KeyError: 'cap'"),
        ("    def __init__(self):\n        super().__init__()", "TypeError"),
        ("    def __init__(self, settings=None):\n        raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        ("    def __init__(self, settings=None):\n        raise ValueError", "ValueError"),
        (VALIDATOR, "KeyError: 'missing'"),
        ("    Settings = None", "TypeError"),
        ("    needs = None", "TypeError: needs is None"),
        ("    needs = frozenset({{'lags'}})", "TypeError: needs is frozenset"),
        ("    normalizer = 'mean'", "TypeError: normalizer is 'mean'"),
        ("    anchor_lag = -1", "TypeError: anchor_lag is -1"),
        ("    anchor_lag = 1.5", "TypeError: anchor_lag is 1.5"),
    ],
)
def test_a_rule_that_cannot_be_built_is_named_with_its_package_and_cause(install, body, cause):
    install("faulty-plugin", "faulty", BODY.format(body=body))
    for name, settings in (("faulty", {}), ("gac", {"base": "faulty"})):
        with pytest.raises(BrokenEstimatorError) as caught:
            registry.build_estimator(name, settings)
        message = str(caught.value)
        assert message.startswith("estimator: " if name == "faulty" else "estimator.base: ")
        assert "estimator faulty (package faulty-plugin 2.1) cannot be built: " + cause in message
        assert "\n" not in message
        assert caught.value.__cause__ is not None


@pytest.mark.unit
def test_a_rule_without_an_objective_cannot_be_built(install):
    install("faulty-plugin", "faulty", BODY.format(body="").replace("def objective", "def other"))
    with pytest.raises(BrokenEstimatorError, match=r"faulty-plugin 2\.1.*cannot be built: TypeError.*objective"):
        registry.build_estimator("faulty")


@pytest.mark.unit
def test_an_unknown_base_lists_what_there_is():
    with pytest.raises(UnknownEstimatorError, match="no estimator is named 'nothing'"):
        registry.build_estimator("gac", {"base": "nothing"})


@pytest.mark.unit
@pytest.mark.parametrize(
    ("base", "name", "epsilon"),
    [("gmc", "gmc", 0.28), ({"name": "gmc", "epsilon": 0.2}, "gmc", 0.2), ({"name": "gmc"}, "gmc", 0.28)],
)
def test_a_composed_rule_takes_its_base_in_every_form(base, name, epsilon):
    rule = registry.build_estimator("gac", {"base": base, "c_low": 0.01})
    assert rule.base.name == name
    assert rule.base.settings.epsilon == epsilon
    assert rule.settings.c_low == 0.01
    again = registry.build_estimator("gac", rule.settings.model_dump())
    assert again.settings == rule.settings


@pytest.mark.unit
def test_a_composed_rule_takes_only_settings_of_its_default_base():
    rule = registry.build_estimator("gac", {"base": {"epsilon_low": 0.1}})
    assert rule.base.name == "grpo"
    assert rule.base.settings.epsilon_low == 0.1


@pytest.mark.unit
def test_numbers_may_arrive_as_text():
    assert registry.build_estimator("gmc", {"epsilon": "0.4"}).settings.epsilon == 0.4


ALLOWED = ("gmc.errors", "gmc.registry", "gmc.config.fields", "gmc.config.normalizer")


@pytest.mark.unit
def test_the_estimators_package_imports_little_else_of_gmc():
    root = Path(registry.__file__).parent
    for file in root.glob("*.py"):
        for line in file.read_text("utf-8").splitlines():
            words = line.split()
            if words[:1] in (["import"], ["from"]) and words[1].split(".")[0] == "gmc":
                assert words[1].startswith("gmc.estimators") or words[1] in ALLOWED, f"{file.name}: {line}"


@pytest.mark.process
def test_listing_runs_in_a_fresh_process():
    code = "from gmc.estimators.registry import list_estimators; print(len([f for f in list_estimators() if f.error]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "0"
