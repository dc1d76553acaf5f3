"""Options and docs/settings.md say what the fields say, and nothing of a field is written twice."""

import importlib.util
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.config.fields import default_text
from gmc.config.flags import EVAL_SETTING_OF, SETTING_OF, flag_of
from gmc.config.layers import FIELDS, field_of

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parent.parent
COMMANDS = [["rollout"], ["train"], ["eval"], ["eval", "arms"], ["simulate-delay"], ["status"], ["estimators", "show"]]


def help_of(*command: str) -> str:
    """The help as one line of words, without the frames."""
    result = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "300", "TERM": "dumb"})
    assert result.exit_code == 0
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.stdout).split())


def test_the_page_of_all_settings_is_current():
    spec = importlib.util.spec_from_file_location("make_settings_page", ROOT / "docs" / "make_settings_page.py")
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    text = maker.PAGE.read_text("utf-8")
    assert text == maker.page(), "docs/settings.md is out of date: run docs/make_settings_page.py"
    rows = re.findall(r"^\| `([\w.]+)` \|.* \| ([^|]+) \|$", text, flags=re.MULTILINE)
    assert [key for key, _ in rows if "." in key] == [key for key in FIELDS if "." in key]
    assert {key for key, _ in rows} == FIELDS.keys()
    assert all(meaning.strip() for _, meaning in rows)


@pytest.mark.parametrize(
    ("command", "table", "without"),
    [
        ("train", SETTING_OF, {"batches"}),
        ("rollout", SETTING_OF, {"estimator", "delay", "updates", "start_version", "learning_rate", "eval_every"}),
        ("eval", EVAL_SETTING_OF, set()),
    ],
)
def test_help_has_meaning_default_and_range_of_the_field(command, table, without):
    shown = help_of(command)
    for name, key in table.items():
        field = field_of(key)
        present = f"{flag_of(name)} " in shown
        assert present == (name not in without), name
        if present:
            assert field.description[1:] in shown, name
            assert f"(default: {default_text(field)}" in shown, name
    assert "G, responses to one prompt. (default: 8; ≥ 2 and ≤ 10,000,000)" in shown or command == "eval"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_flags_and_choices_look_right(command):
    shown = help_of(*command)
    assert "<bool>" not in shown
    if command == ["train"]:
        assert "--logprobs [trainer|engine]" in shown
        assert "--estimator NAME" in shown
    if command == ["eval"]:
        assert "--greedy --no-greedy" in shown
