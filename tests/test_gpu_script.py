"""`benchmarks/gpu.sh` cannot fail by a misspelt flag on the first GPU: each of its commands is parsed as its program would, and
what `benchmarks.update` would start is planned, without running any of it."""

import argparse
import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[1]


class _ParsedError(Exception):
    """Carries what a command line came to."""


@pytest.fixture
def commands(tmp_path: Path) -> list[list[str]]:
    """What the script would run, every variable filled in: its `python` is one that prints its arguments and does nothing."""
    double = tmp_path / "bin" / "python"
    double.parent.mkdir()
    double.write_text(f"#!{sys.executable}\nimport json, sys\nprint('ASKED', json.dumps(sys.argv[1:]), file=sys.stderr)\n")
    double.chmod(0o755)
    script = [str(ROOT / "benchmarks" / "gpu.sh"), str(tmp_path / "results")]
    ended = subprocess.run(
        ["bash", *script], env={"PATH": f"{double.parent}:/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    assert (tmp_path / "results").is_dir()
    return [json.loads(line.removeprefix("ASKED ")) for line in ended.stderr.splitlines() if line.startswith("ASKED ")]


def parsed(monkeypatch: pytest.MonkeyPatch, module: str, arguments: list[str]) -> argparse.Namespace:
    """The command line as the module's own `main` reads it. Fails where it would refuse it."""
    real = argparse.ArgumentParser.parse_args

    def stop(self: argparse.ArgumentParser, *given: Any, **named: Any) -> None:
        raise _ParsedError(real(self, *given, **named))

    monkeypatch.setattr(sys, "argv", [module, *arguments])
    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", stop)
        with pytest.raises(_ParsedError) as found:
            importlib.import_module(module).main()
    namespace = found.value.args[0]
    assert isinstance(namespace, argparse.Namespace)
    return namespace


def test_every_command_is_one_that_its_program_takes(commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert [command[1] for command in commands] == [
        "pytest",
        *(f"benchmarks.{name}" for name in ("device", "update", "generation")),
    ]
    assert all((ROOT / path).is_file() for path in commands[0] if path.endswith(".py"))
    for command in commands[1:]:
        assert command[0] == "-m"
        found = parsed(monkeypatch, command[1], command[2:])
        assert found.json.parent.is_dir()


def test_what_is_started_for_each_shape_is_understood_by_the_worker(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    benchmark = importlib.import_module("benchmarks.update")
    shapes = importlib.import_module("benchmarks.shapes").SHAPES
    arguments = parsed(monkeypatch, "benchmarks.update", commands[2][2:])
    assert arguments.shapes == ["paper-like, 1.7B", "long, 1.7B"]
    understood = {
        node.value for node in ast.walk(ast.parse((ROOT / "benchmarks" / "gmc_worker.py").read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }  # fmt: skip
    for name in arguments.shapes:
        planned = dict(benchmark.commands(shapes[name], tmp_path, None, arguments))
        assert list(planned) == [
            "gmc", "gmc, prompts not shared", "gmc, checkpointing", "gmc, checkpointing, prompts not shared", "gmc, compiled",
            "gmc, 8-bit AdamW",
        ]  # fmt: skip
        for worker in planned.values():
            assert worker[:3] == [sys.executable, "-m", "benchmarks.gmc_worker"]
            assert worker[3] == name
            assert set(json.loads(worker[5])) <= understood


def test_a_misspelt_flag_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit):
        parsed(monkeypatch, "benchmarks.update", ["--shapes", "embedded", "--varients"])
