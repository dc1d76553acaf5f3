"""The reward `code`: tests of every known form, and hostile programs that all end in time with nothing left behind.

All of the programs run by `python -m tests.full hostile`; here those that take no time limit to end.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hostile_programs import PROGRAMS
from left_behind import adopting, left_behind

from gmc.errors import DataError
from gmc.problems.base import Problem
from gmc.rewards.base import Sample
from gmc.rewards.build import build_reward
from gmc.rewards.code import Code
from gmc.rewards.code_tests import CodeTest, extract_code, read_tests, same_output
from gmc.rewards.running import Limits, run_code
from gmc.testing import check_reward

LIMITS = Limits(cpu_seconds=1, wall_seconds=6, memory_bytes=512 << 20, needs=("files", "calls"))
HELD = run_code("", limits=LIMITS).ending == "done" if sys.platform == "linux" else False
confined = pytest.mark.skipif(not HELD, reason="this kernel has no Landlock or no seccomp")
QUICK = [name for name, (_, endings) in PROGRAMS.items() if "timeout" not in endings]


def sample(text, tests):
    return Sample(Problem("p", "?", "", fields={"tests": tests}), "?", text, [1])


def score(text, tests, **settings):
    reward = Code(Code.Settings(**settings))
    reward.prepare(sample(text, tests).problem)
    return reward.score([sample(text, tests)])[0]


@pytest.mark.process
def test_assertions_and_pairs_of_input_and_output():
    add = "Here it is:\n```python\ndef add(a, b):\n    return a + b\n```\nDone."
    assert score(add, ["assert add(1, 2) == 3", "assert add(0, 0) == 0"]).reward == 1.0
    failed = score(add, ["assert add(1, 2) == 3", "assert add(1, 1) == 3", "assert add(2, 2) == 4"])
    assert (failed.reward, failed.status) == (0.0, "failed")
    assert failed.note == "test 2 of 3: AssertionError"
    shared = score(add, ["assert add(1, 2) == 3", "assert add(1, 1) == 3", "assert add(2, 2) == 4"], share=True)
    assert (shared.reward, shared.status) == (pytest.approx(2 / 3), "failed")
    program = "n = int(input())\nprint(n * 2)\n"
    pairs = json.dumps({"inputs": ["2\n", "5"], "outputs": ["4", "10\n\n"]})
    assert score(program, pairs).status == "passed"
    assert score(program + "import sys\nsys.exit(0)", pairs).status == "passed"
    assert score(program + "1 / 0", pairs).note == "test 1 of 2: ZeroDivisionError: division by zero"
    assert score(program, [{"input": "2", "output": "5"}]).status == "failed"
    assert score("", pairs).status == "no code"
    assert score("def add(a, b) return", ["pass"]).note.startswith("test 1 of 1: SyntaxError")


@pytest.mark.unit
def test_where_the_code_of_a_response_stands():
    assert extract_code("a\n```py\nx = 1\n```\n```\nnot this\n```") == "x = 1\n"
    assert extract_code("```\nx = 2\n```") == "x = 2\n"
    assert extract_code("```python\nx = 1\n```\nbetter:\n```python\nx = 3\n") == "x = 3\n"
    assert extract_code("x = 4") == "x = 4"
    assert extract_code("  \n") is None
    assert extract_code("```python\n```") is None


@pytest.mark.unit
def test_every_known_form_of_tests():
    pair = CodeTest(stdin="1\n2", stdout="3")
    assert read_tests("def check(f):\n    assert f(1) == 2\ncheck(f)") == [
        CodeTest(source="def check(f):\n    assert f(1) == 2\ncheck(f)")
    ]
    assert read_tests(["assert a", "assert b"]) == [CodeTest(source="assert a"), CodeTest(source="assert b")]
    assert read_tests({"inputs": [["1", "2"]], "outputs": [3]}) == [pair]
    assert read_tests('[{"input": "1\\n2", "output": "3"}]') == [pair]
    for bad, words in (
        ("", "empty"),
        ([], "no tests"),
        ({"inputs": ["1"]}, "no output"),
        ({"inputs": ["1"], "outputs": []}, "not two lists of one length"),
        ([3], "a test is int"),
    ):
        with pytest.raises(DataError, match=words):
            read_tests(bad)
    assert same_output("a \nb\n\n", "a\nb")
    assert not same_output("a\n\nb", "a\nb")


@pytest.mark.unit
def test_a_problem_without_tests_is_refused_by_name():
    with pytest.raises(DataError, match=r"no column tests with tests \(there are checks\); name it by code\(field='...'\)"):
        Code().prepare(Problem("p", "?", "", fields={"checks": ["assert 1"]}))
    assert Code(Code.Settings(field="checks")).prepare(Problem("p", "?", "", fields={"checks": ["assert 1"]})).problem_id == "p"
    assert not build_reward(["code(share=True)"]).is_binary
    assert build_reward(["code"]).is_binary


@pytest.mark.process
def test_code_keeps_the_contract():
    check_reward(Code, {"cpu_seconds": 1}, problem=Problem("p", "?", "", fields={"tests": ["assert True"]}))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A place for temporary folders that no other test uses."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.process
@confined
@pytest.mark.parametrize("name", QUICK)
def test_a_hostile_program_ends_with_a_verdict(name):
    source, endings = PROGRAMS[name]
    with adopting():
        run_hostile(source, endings)


@pytest.mark.process
@confined
def test_programs_that_never_end_are_ended():
    started = time.monotonic()
    with adopting():
        before = left_behind()
        for name in ("endless loop", "sleep past the limit", "ignore every signal"):
            assert run_code(PROGRAMS[name][0], ["pass"], limits=replace(LIMITS, wall_seconds=2)).ending == "timeout"
            assert left_behind(before) == set()
    assert time.monotonic() - started < 20


def run_hostile(source, endings):
    before = left_behind()
    ran = run_code(source, ["pass"], limits=LIMITS)
    ending = {"done": "passed"}.get(ran.ending, ran.ending)
    assert ending in endings, ran
    assert len(ran.output) <= LIMITS.file_bytes
    assert left_behind(before) == set()
    assert not Path("/tmp/gmc-hostile").exists()


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="adopts processes as Linux does")
def test_a_process_that_is_left_behind_is_found_in_whatever_session():
    escape = "import os, time\nif not os.fork():\n    os.setsid()\n    if not os.fork():\n        time.sleep(60)"
    with adopting():
        before = left_behind()
        subprocess.run([sys.executable, "-S", "-c", escape], check=True, env={})
        [found] = left_behind(before)
        assert "import os, time" in found
        os.kill(int(found.split()[1].strip(":")), 9)
        assert left_behind(before) == set()


@pytest.mark.process
@confined
def test_code_that_runs_is_ended_with_the_run_that_started_it(tmp_path):
    code = "import time; time.sleep(99)"
    program = f"from gmc.rewards.running import run_code, Limits; run_code({code!r}, limits=Limits(wall_seconds=99))"
    run = subprocess.Popen([sys.executable, "-c", program], env=os.environ | {"TMPDIR": str(tmp_path)})
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
    deadline = time.monotonic() + 30
    while not (found := children.read_text().split()) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1)
    run.kill()
    run.wait()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{found[0]}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{found[0]}").exists()
