"""How commands end and what reaches the terminal: signals, broken streams, escape sequences, a lost working directory."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.cli.output import PlainConsole, print_json
from gmc.cli.streams import LastingStream, shown
from gmc.registry import Registry
from gmc.training.signals import stop_on_signals

COMMAND = [sys.executable, "-m", "gmc"]


@pytest.mark.unit
def test_what_steers_a_terminal_is_written_out(capsys):
    hostile = "a\x1b]0;title\x07\x9b31m\u202eb\tc\n"
    assert shown(hostile) == "a\\x1b]0;title\\x07\\x9b31m\\u202eb\tc\n"
    file = io.StringIO()
    PlainConsole(file=file, force_terminal=True, highlight=False).print(hostile, markup=False, style="red")
    assert not set("\x1b\x07\x9b\u202e") & set(re.sub(r"\x1b\[(31|0)m", "", file.getvalue()))  # without rich's own red
    print_json({"key": "a\x9b\x7f\\x9b"})
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert json.loads(printed) == {"key": "a\x9b\x7f\\x9b"}


@pytest.mark.unit
@pytest.mark.parametrize("key", ['"\\u001b[31mrollout"', '"a\\u009b"'])
def test_a_hostile_recipe_cannot_speak_to_the_terminal(tmp_path, key):
    recipe = tmp_path / "r.toml"
    recipe.write_text(f"{key} = 1\n", "utf-8")
    result = CliRunner().invoke(app, ["train", "--recipe", str(recipe), "--dry-run"])
    assert result.exit_code == 2
    assert "unknown setting" in result.stderr
    assert not set("\x1b\x9b") & set(result.stderr)


class Broken(io.StringIO):
    """A terminal that has gone away."""

    def write(self, text):
        raise OSError(5, "Input/output error")


@pytest.mark.unit
@pytest.mark.parametrize("stream", [None, Broken()])
def test_messages_go_to_the_log_when_standard_error_is_gone(tmp_path, stream):
    lasting = LastingStream(stream)
    lasting.write("lost\n")
    lasting.keep_messages(tmp_path / "logs" / "messages.log")
    lasting.write("kept ü\n")
    lasting.flush()
    assert not lasting.isatty()
    assert (tmp_path / "logs" / "messages.log").read_text("utf-8") == "kept ü\n"


@pytest.mark.unit
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_each_signal_asks_for_a_stop(number):
    before = signal.getsignal(number)
    with stop_on_signals() as stop:
        assert not stop
        os.kill(os.getpid(), number)
        assert stop.signal_name == number.name
    assert signal.getsignal(number) == before


@pytest.mark.unit
def test_a_signal_that_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.unit
@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit("no")])
def test_a_plug_in_that_ends_the_process_at_import_is_listed_as_broken(monkeypatch, error):
    class Point:
        name, value, module, dist = "evil", "evil:Evil", "evil", None

        def load(self):
            raise error

    monkeypatch.setattr("gmc.registry.registered", lambda group: [Point()])
    [plugin] = Registry("gmc.any", object, "rule").plugins()
    assert plugin.cls is None
    assert f"cannot be imported: {type(error).__name__}" in str(plugin.error)


def start(run, *, stderr=subprocess.PIPE, updates=10**6):
    arguments = ["train", "--run", str(run), "--delay", "0", "--updates", str(updates), "--prompts", "2", "--group-size", "2"]
    return subprocess.Popen([*COMMAND, *arguments, "--max-tokens", "8"], stderr=stderr, text=True)


def wait_for_updates(run, process):
    metrics = run / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.read_bytes().count(b"\n") >= 2):
        time.sleep(0.02)
    assert process.poll() is None


@pytest.mark.process
def test_ctrl_c_writes_a_checkpoint_and_then_the_process_dies_by_it(tmp_path):
    process = start(tmp_path / "run")
    wait_for_updates(tmp_path / "run", process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT
    assert "stopped by Ctrl-C after " in said
    assert "Traceback" not in said
    [checkpoint] = list((tmp_path / "run" / "checkpoints").glob("u*"))
    assert (checkpoint / "READY").exists()


@pytest.mark.process
def test_training_goes_on_when_nobody_listens(tmp_path):
    read, write = os.pipe()
    process = start(tmp_path / "run", stderr=write, updates=3)
    os.close(write)
    os.close(read)
    assert process.wait(timeout=180) == 0
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes().count(b"\n") == 3
    assert "3 of 3 updates made" in (tmp_path / "run" / "logs" / "messages.log").read_text("utf-8")


@pytest.mark.process
def test_ctrl_c_while_the_command_loads_says_nothing(tmp_path):
    """Imports take a second; the signal may come at any moment of it. Only Python's own start, before gmc, is out of reach."""
    ready = (
        "import sys, gmc.__main__ as command; sys.stdout.write('x'); sys.stdout.flush(); sys.argv[1:] = ['estimators']; "
        "command.main()"
    )
    for delay in (0.02, 0.2):
        process = subprocess.Popen([sys.executable, "-c", ready], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.read(1) == "x"
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert "Traceback" not in said
        assert process.returncode in (-signal.SIGINT, 0)


@pytest.mark.process
@pytest.mark.parametrize("start", ["app.main()", "with stop_on_signals(): os.kill(os.getpid(), signal.SIGINT); load()"])
def test_no_import_swallows_ctrl_c(tmp_path, start):
    """As an import of an optional library does, inside of which a second one is tried."""
    (tmp_path / "swallowing.py").write_text("try:\n    import slow\nexcept BaseException:\n    pass\n")
    (tmp_path / "slow.py").write_text("import time\nprint('x', flush=True)\ntime.sleep(60)\n")
    script = (
        "import os, signal; from gmc.cli import app; from gmc.training.signals import stop_on_signals\n"
        "signal.signal(signal.SIGINT, signal.SIG_DFL); load = app.app = lambda: __import__('swallowing')\n"
        f"{start}\nprint('went on')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "x\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == -signal.SIGINT


@pytest.mark.process
@pytest.mark.parametrize("seconds", [1, 2, 3, 4])
def test_ctrl_c_soon_after_the_start_ends_a_command_at_once(tmp_path, seconds):
    arguments = ["rollout", "--run", str(tmp_path / "run"), "--batches", "100000", "--max-tokens", "8"]
    process = subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert "Traceback" not in said
    assert process.returncode == -signal.SIGINT


@pytest.mark.process
def test_a_deleted_working_directory_is_one_line(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"cd {gone} && rmdir {gone} && {sys.executable} -m gmc train --updates 1"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env={**os.environ, "PYTHONSAFEPATH": "1"})
    assert done.returncode == 1
    assert done.stderr.startswith("error: the working directory cannot be used (No such file or directory)")
    assert done.stderr.count("\n") == 1
