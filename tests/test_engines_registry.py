"""Engines are found by name, say what they are, and are built from settings; a plug-in's engine is used like a built-in one."""

import logging
import sys

import pytest
from training_runs import small_settings

from gmc.engines.registry import list_engines, load_engine
from gmc.engines.transformers import TransformersEngine
from gmc.errors import UsageError
from gmc.models import load_model
from gmc.resolving.build import build_engine
from gmc.resolving.checks import check_settings

pytestmark = pytest.mark.unit

DICE = """
from gmc.engines.base import Engine
class Dice(Engine):
    name = "dice"
    summary = "rolls dice"
    version = "1"
    shares_weights = False
    seedable = False
    @classmethod
    def build(cls, settings, model, *, compute_dtype, log_file):
        engine = cls()
        engine.built = (settings.rollout.engine, model.source, compute_dtype, log_file.name)
        return engine
    def generate(self, prompts, *, group_size, sampling, seeds, progress=None):
        return []
    def load_weights(self, weights):
        pass
    def close(self):
        pass
"""


@pytest.fixture
def dice(tmp_path, monkeypatch):
    info = tmp_path / "gmc_dice-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gmc-dice\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gmc.engines]\ndice = gmc_dice_engine:Dice\n")
    (tmp_path / "gmc_dice_engine.py").write_text(DICE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "gmc_dice_engine", raising=False)


def test_the_built_in_engines_say_what_they_are():
    facts = {
        plugin.name: (plugin.cls.shares_weights, plugin.cls.own_processes, plugin.cls.seedable)
        for plugin in list_engines()
        if plugin.cls is not None
    }
    assert facts["transformers"] == (True, False, True)
    assert facts["vllm"] == (False, True, True)


def test_settings_build_the_engine_they_name(tmp_path):
    engine = build_engine(small_settings(), load_model("embedded"), tmp_path / "engine.log")
    assert type(engine) is TransformersEngine


def test_an_engine_of_a_plugin_is_built_and_one_without_seeds_is_reported(dice, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("gmc"), "propagate", True)
    settings = small_settings("rollout.engine=dice")
    check_settings(settings)
    engine = build_engine(settings, load_model("embedded"), tmp_path / "engine.log")
    assert engine.built == ("dice", "embedded", None, "engine.log")
    assert "engine dice cannot be seeded" in caplog.text


def test_an_unknown_engine_is_refused_before_anything_is_created():
    with pytest.raises(UsageError, match=r"rollout\.engine = vlm: no engine is named 'vlm'\. Did you mean vllm\?"):
        check_settings(small_settings("rollout.engine=vlm"))
    with pytest.raises(UsageError, match="no engine is named"):
        load_engine("nothing")
