"""A command that somebody's code ends from within has not done its work: its exit code says so."""

import os
import re
import subprocess
import sys

import pytest

from gmc.cli import app
from gmc.cli.exits import Exits

pytestmark = pytest.mark.process


def leave_in_another_process():
    if (child := os.fork()) == 0:
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def replace_another_process():
    if (child := os.fork()) == 0:
        os.execvp("true", ["true"])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


ENDINGS = {
    "leaves": (lambda: os._exit(0), 1, r"os._exit\(0\) ended the command before it was done"),
    "leaves by a number that is 0": (lambda: os._exit(256), 1, r"os._exit\(256\) ended the command"),
    "leaves with an error": (lambda: os._exit(3), 3, None),
    "becomes another program": (lambda: os.execv("/bin/true", ["true"]), 1, "os.execv ended the command"),
    "becomes one on the path": (lambda: os.execlp("true", "true"), 1, "os.execv ended the command"),
    "becomes one elsewhere": (lambda: os.execve("/bin/true", ["true"], {}), 1, "os.execve ended the command"),
    "without a word": (lambda: (os.close(2), sys.stderr.close(), os._exit(0)), 1, None),
    "exits": (lambda: sys.exit(0), 1, r"sys.exit\(0\) ended the command before it was done"),
    "exits without a number": (lambda: sys.exit(), 1, r"sys.exit\(None\) ended the command"),
    "ends another process": (leave_in_another_process, 0, None),
    "replaces another process": (replace_another_process, 0, None),
}


def code_of(act):
    """How a process ends that is forked for it."""
    if (child := os.fork()) == 0:
        try:
            act()
        except SystemExit as ended:
            os._exit(ended.code or 0)
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("name", ENDINGS)
def test_no_command_ends_with_0_before_it_is_done(name, monkeypatch, capfd):
    act, code, words = ENDINGS[name]
    monkeypatch.setattr(sys, "argv", ["gmc", "runs"])
    [runs] = [command for command in app.app.registered_commands if command.name == "runs"]
    monkeypatch.setattr(runs, "callback", act)
    assert code_of(app.main) == code
    said = capfd.readouterr().err
    if words is None:
        assert said == ""
    else:
        assert re.fullmatch(rf"error: \S+test_exits\.py, line \d+: {words}.*--resume\n", said), said


def test_after_the_command_the_exit_code_is_its_own():
    def end_with(code):
        exits = Exits()
        exits.watch()
        exits.code = code
        os._exit(0)

    assert [code_of(lambda code=code: end_with(code)) for code in (0, 2, 130)] == [0, 2, 130]


@pytest.mark.parametrize("arguments", [["simulate-delay", "--help"], ["train", "--help"], ["estimators", "list"], ["delays"]])
def test_nothing_is_said_where_nobody_reads_on(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run([sys.executable, "-m", "gmc", *arguments], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert "ended the command" not in ended.stderr
    assert "Traceback" not in ended.stderr
