"""One optimizer update, gmc beside TRL's GRPOTrainer, on the same model, prompts and responses.

    python -m benchmarks.update [--shapes embedded paper-like long] [--repeats 3] [--trl PYTHON] [--json FILE]

Each contender lives in its own process with the model loaded; they take turns, and medians are compared. `--trl` names the
Python of an environment with TRL; `--make-trl FOLDER` creates one. `--model FOLDER` uses these weights instead of random ones.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import meter
from benchmarks.shapes import SHAPES, Shape, write_model

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("passes", "estimator", "optimizer")
"""passes: forward and backward, which alternate."""


class Contender:
    """A worker process that answers with one JSON line whenever it is told to run an update."""

    def __init__(self, command: list[str], log: Path) -> None:
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        self._log = log.open("w")
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )
        self.about = self._answer()

    def run(self) -> Any:
        """One update."""
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(f"a worker ended early; its log: {self._log.name}\n{Path(self._log.name).read_text()[-2000:]}")


def main() -> None:
    """Parse the command line, time every shape, print tables on stderr and one JSON object on stdout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=sorted(SHAPES), default=["embedded", "paper-like", "long"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: for a machine that others use too")
    parser.add_argument(
        "--variants",
        action="store_true",
        help="also without prompt sharing, with checkpointing, with torch.compile, with 8-bit AdamW",
    )
    parser.add_argument("--trl-checkpointing-only", action="store_true", help="leave out the contender that needs most memory")
    parser.add_argument("--trl", type=Path, help="Python of an environment that has TRL")
    parser.add_argument("--make-trl", type=Path, metavar="FOLDER", help="create that environment first (downloads packages)")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    trl = make_trl(arguments.make_trl) if arguments.make_trl else arguments.trl
    result = {"machine": meter.machine(), "shapes": {}}
    for name in arguments.shapes:
        result["shapes"][name] = measure(SHAPES[name], trl, arguments)
    meter.publish(result, arguments.json)


def measure(shape: Shape, trl: Path | None, arguments: argparse.Namespace) -> dict[str, Any]:
    """Time all contenders on one shape."""
    answers: dict[str, list[Any]] = {}
    about: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = _model_folder(shape, arguments.model, Path(scratch))
        named = dict(commands(shape, folder, trl, arguments))
        # A GPU is ours alone and could not hold all contenders; on a CPU they take turns, since others may use it too.
        for names in [[name] for name in named] if meter.torch.cuda.is_available() else [list(named)]:
            with contextlib.ExitStack() as stack:
                contenders = {}
                for name in names:
                    contenders[name] = Contender(named[name], Path(scratch) / f"{list(named).index(name)}.log")
                    stack.callback(contenders[name].close)
                    if shape.model in ("embedded", "tiny") or meter.torch.cuda.is_available():
                        contenders[name].run()  # A warm-up, where the first call's overhead would show.
                answers |= meter.interleaved({name: item.run for name, item in contenders.items()}, arguments.repeats)
                about |= {name: item.about for name, item in contenders.items()}
    return summarize(shape, answers, about)


def commands(shape: Shape, folder: Path, trl: Path | None, arguments: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    """Each contender's name and command line."""
    base = {"bfloat16": arguments.bfloat16, "clock": arguments.clock}
    variants: dict[str, dict[str, Any]] = {"gmc": {}}
    if arguments.variants:
        variants |= {
            "gmc, prompts not shared": {"share_prompts": False},
            "gmc, checkpointing": {"checkpointing": True},
            "gmc, checkpointing, prompts not shared": {"checkpointing": True, "share_prompts": False},
            "gmc, compiled": {"compiled": True},
            "gmc, 8-bit AdamW": {"adamw8bit": True},
        }
    for name, options in variants.items():
        worker = [sys.executable, "-m", "benchmarks.gmc_worker"]
        yield name, [*worker, shape.name, str(folder), json.dumps(base | options)]
    peers = {"trl (its default: checkpointing)": True, "trl, no checkpointing": False}
    for name, checkpointing in peers.items() if trl else ():
        if arguments.trl_checkpointing_only and not checkpointing:
            continue
        worker = [str(trl), str(ROOT / "benchmarks" / "trl_worker.py")]
        yield (
            name,
            [*worker, shape.name, str(folder), json.dumps(base | {"checkpointing": checkpointing})],
        )


def summarize(shape: Shape, answers: dict[str, list[Any]], about: dict[str, Any]) -> dict[str, Any]:
    """Medians by contender, ratios to gmc, and gmc's share of the matrix-product peak."""
    tokens = sum(len(response) for group in shape.batch(1000)[1] for response in group)
    updates = {name: meter.median([_update_seconds(run) for run in runs]) for name, runs in answers.items()}
    rows = []
    for name, runs in answers.items():
        parts = {part: meter.median([run["seconds"].get(part, 0.0) for run in runs]) for part in ("behavior", *PARTS)}
        update = updates[name]
        rows.append(
            {
                "contender": name,
                "update s": update,
                **{f"{part} s": seconds for part, seconds in parts.items()},
                "response tokens/s": tokens / update,
                "state, MB": about[name]["state"] / 1e6,
                "peak beyond state, MB": max(run["peak"] for run in runs) / 1e6,
                "slower than gmc": update / updates["gmc"],
                "share of matmul peak": _share(about[name], tokens, parts),
            }
        )
    meter.show(f"{shape.name}: {shape.groups} x {shape.group_size} responses, {tokens} response tokens", rows)
    return {"rows": rows, "about": about}


def _update_seconds(run: dict[str, Any]) -> float:
    return float(sum(run["seconds"].get(part, 0.0) for part in PARTS))


def _share(about: dict[str, Any], tokens: int, parts: dict[str, float]) -> float | None:
    """Useful floating-point operations of forward and backward (6 a parameter and token, head for response tokens only,
    attention not counted) over what the same machine's matrix product would do in that time."""
    if "matmul_flops" not in about:
        return None
    body = about["parameters"] - about["head_parameters"]
    operations = 6 * (body * about["input_tokens"] + about["head_parameters"] * tokens)
    return operations / (parts["passes"] * about["matmul_flops"])


def make_trl(folder: Path) -> Path:
    """Create a virtual environment with TRL in `folder` and return its Python."""
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    packages = ["trl==1.16.0", f"torch=={meter.torch.__version__}", "transformers>=5.16.1,<5.20"]
    subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], check=True)
    return python


def _model_folder(shape: Shape, given: Path | None, scratch: Path) -> Path:
    if shape.model == "embedded":
        from gmc.models import embedded_model_path

        return Path(embedded_model_path())
    return given or write_model(shape.model, scratch / "model")


if __name__ == "__main__":
    main()
