"""Small studies for tests of the laboratory, and records as runs would leave them."""

from pathlib import Path
from typing import Any

import tomli_w

from gmc.lab.results import RunRecord
from gmc.lab.sweep_file import Sweep, parse_sweep

SMALL = {
    "delay": "ramp:2",
    "rollout": {"prompts": 2, "group_size": 2, "max_tokens": 12},
    "train": {"updates": 4, "checkpoint_every": 2},
    "eval": {"limit": 8, "samples": 1, "greedy": False},
}


def sweep_content(**changed: Any) -> dict[str, Any]:
    """Two rules, one with two caps, at two rates, chosen on seed 100."""
    content = {
        "name": "small",
        "seeds": [0, 1],
        "settings": SMALL,
        "axes": {"optimizer.learning_rate": [1e-4, 4e-4]},
        "arms": {"gmc": {"axes": {"estimator": {"epsilon": [0.28, 1.0]}}}, "grpo": {}},
        "select": {"seeds": [100], "axes": ["estimator.epsilon", "optimizer.learning_rate"]},
        "compare": {"baseline": "gmc"},
    }
    return {key: value for key, value in (content | changed).items() if value is not None}


def write_sweep(folder: Path, **changed: Any) -> Path:
    """The same as a file."""
    path = folder / "small.toml"
    path.write_text(tomli_w.dumps(sweep_content(**changed)))
    return path


def make_sweep(**changed: Any) -> Sweep:
    """The same, parsed."""
    return parse_sweep(sweep_content(**changed), "small.toml")


def make_record(arm: str, seed: int, score: float, **changed: Any) -> RunRecord:
    """A finished run with this avg@4, a straight curve from 0.3 to it, and any other field changed."""
    fields: dict[str, Any] = {
        "run": f"{arm}-s{seed}-{changed.get('values', {})}-{changed.get('chosen', {})}",
        "arm": arm,
        "stage": "verdict",
        "seed": seed,
        "settings": {"seed": seed, "estimator.name": arm},
        "status": "finished",
        "scores": {"arithmetic": {"avg@4": score_record(score), "greedy": score_record(score)}},
        "curve": [
            {"version": version, "benchmark": "arithmetic", "scores": {"avg@1": 0.3 + (score - 0.3) * version / 400}}
            for version in range(0, 401, 100)
        ],
        "training": {"delay_mean": 54.0, "removed_mass": 0.2, "ess_share": 0.4, "gradient_norm_max": 0.03, "updates": 400},
        "windows": {
            "update": [200, 400],
            "reward/mean": [0.4, 0.6],
            "delay/mean": [32.0, 64.0],
            "ratio/ess_share": [0.7, 0.4],
            "ratio/removed_mass": [0.1, 0.3],
            "ratio/log_rho_std": [0.2, 0.9],
        },
        "seconds": {"training": 100.0, "evaluation": 20.0},
        "versions": {"gmc": "0.2.0", "torch": "2.13.0"},
    }
    return RunRecord(**(fields | changed))


def score_record(value: float) -> dict[str, Any]:
    """A score of four problems."""
    return {"value": value, "low": value - 0.05, "high": value + 0.05, "samples": 4, "problem_sums": "0123"}
