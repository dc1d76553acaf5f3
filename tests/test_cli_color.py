"""Colors: where a terminal wants them, never with NO_COLOR (no-color.org)."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

COLOR = "\x1b[3"  # the foreground colors of ECMA-48 begin so, as in ESC[31m


def shown(*arguments, **environment):
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    command = [sys.executable, "-m", "gmc", *arguments]
    result = subprocess.run(
        command, capture_output=True, text=True, env={**env, "TERM": "xterm-256color", **environment}, timeout=120
    )
    return result.stdout + result.stderr


def has_color(text):
    return any(f"\x1b[{style}{color}m" in text for style in ("", "1;") for color in range(30, 38))


@pytest.mark.parametrize("command", [("status", "nowhere"), ("--help",), ("rewards",)])
def test_no_color_wins_over_a_terminal_that_wants_it(command):
    plain = shown(*command, FORCE_COLOR="1", NO_COLOR="1")
    assert plain.strip()
    assert not has_color(plain)
    assert COLOR not in plain


def test_without_it_an_error_is_red():
    assert has_color(shown("status", "nowhere", FORCE_COLOR="1"))
