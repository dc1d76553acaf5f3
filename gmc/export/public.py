"""A run's settings as strangers may see them: of what is a path on this machine only the last name is told."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gmc.problems.readers import READERS
from gmc.rewards.specs import parse_reward

ABSOLUTE = re.compile(r"(?<![\w./:*}\])-])~?/(?:[\w.+@-]+/)+([\w.+@-]+)")
"""An absolute path of at least two names in a text; its last name is kept."""


def is_local(source: str) -> bool:
    """Whether a model's or data set's name means files of this machine, which nobody else can fetch."""
    looks_local = source.startswith(("/", "~", ".")) or source.count("/") > 1 or Path(source).suffix.lower() in READERS
    return looks_local or os.path.exists(source)


def public_name(source: str) -> str:
    """A name that others can use, or the last part of a path."""
    return Path(source).name if is_local(source) else source


def public_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The tree of settings without folders of this machine: model, problems, reward functions, a schedule's file."""
    reward, delay = settings["reward"], str(settings["delay"])
    kind, colon, rest = delay.partition(":")
    return {
        **settings,
        "delay": f"{kind}:{Path(rest).name}" if colon and "/" in rest else delay,
        "model": {**settings["model"], "source": public_name(settings["model"]["source"])},
        "problems": {**settings["problems"], "source": public_name(settings["problems"]["source"])},
        "reward": {
            **reward,
            "parts": list(map(public_reward, reward["parts"])),
            "code": list(map(_public_code, reward["code"])),
        },
    }


def public_reward(text: str) -> str:
    """A reward as it was asked for, a function's file by its last name."""
    spec = parse_reward(text)
    return str(replace(spec, target=f"{Path(spec.place).name}:{spec.attribute}")) if spec.is_file else text


def _public_code(text: str) -> str:
    """A file of functions by its hash and last name."""
    digest, _, path = text.partition(" ")
    return f"{digest} {Path(path).name}"


def public_text(text: str, sources: Iterable[str]) -> str:
    """A text without folders of this machine: those of `sources`, and whatever else in it has the form of an absolute path."""
    for source in sorted(filter(is_local, sources), key=len, reverse=True):
        text = text.replace(source, public_name(source))
    return ABSOLUTE.sub(r"\1", text)
