"""What a function starts ends with its process, in whatever session, group or surroundings it is."""

import re
import sys
import time
from pathlib import Path

import pytest

from gmc.environments.base import Turn
from gmc.environments.build import build_environment
from gmc.problems.base import Problem
from gmc.rewards.base import Sample
from gmc.rewards.build import build_reward
from gmc.rewards.function import RewardError

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes as Linux shows them"),
]

CODE = """
import os, subprocess, sys, time

def note(pid):
    with open({file!r}, "a") as file:
        file.write(f"{{pid}}\\n")

def start(*_, **__):
    "Start some."
    note(subprocess.Popen(["sleep", "600"], start_new_session=True).pid)
    note(subprocess.Popen(["sleep", "600"], start_new_session=True, env={{}}).pid)
    if not (child := os.fork()):
        os.setsid()
        if not os.fork():
            note(os.getpid())
            if not os.fork():
                note(os.getpid())
                os.execve("/bin/sleep", ["sleep", "600"], {{}})
            time.sleep(600)
        os._exit(0)
    os.waitpid(child, 0)
    while len(open({file!r}).read().split()) < 4:
        time.sleep(0.01)
    return [1.0]

def leave(*_, **__):
    "Start one and end."
    note(subprocess.Popen(["sleep", "600"], start_new_session=True).pid)
    os._exit(3)

def hang(*_, **__):
    "Start one and hang."
    note(subprocess.Popen(["sleep", "600"], start_new_session=True).pid)
    time.sleep(600)
"""


def lives(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "detaching.py"
    path.write_text(CODE.format(file=str(tmp_path / "started")))
    return path


def require_ended(path, number):
    started = (path.parent / "started").read_text().split()
    assert len(started) >= number
    deadline = time.monotonic() + 10
    while any(map(lives, started)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [process for process in started if lives(process)] == []


def test_what_a_reward_function_has_started_ends_with_its_process(code):
    sample = Sample(Problem("p", "q", "1"), "q", "1", [1])
    with build_reward([f"{code}:start"]) as reward:
        assert [score.reward for score in reward.score([sample])] == [1.0]
        assert all(map(lives, (code.parent / "started").read_text().split()))
    require_ended(code, 4)


def test_what_was_started_ends_also_where_the_process_ended_before_or_took_too_long(code):
    sample = Sample(Problem("p", "q", "1"), "q", "1", [1])
    for name, words in (("leave", "ended with exit code 3"), ("hang", "no answer within 0.5 s")):
        with build_reward([f"{code}:{name}"], seconds=0.5) as reward, pytest.raises(RewardError, match=re.escape(words)):
            reward.score([sample])
        require_ended(code, 2)  # asked once for all, and once for the first problem


def test_what_a_tool_has_started_ends_with_the_environment(code):
    environment = build_environment(f"tools(functions={code}:start)")
    episode = environment.start(Problem("p", "q", "1"))
    episode.turns.append(Turn("assistant", "<tool>start()</tool>"))
    assert environment.reply(episode, "<tool>start()</tool>") == "<result>[1.0]</result>"
    environment.close()
    require_ended(code, 4)
