"""How rollouts look on a terminal, and as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from gmc.cli.streams import shown
from gmc.errors import UsageError, did_you_mean
from gmc.store.shards.groups import sampled_length, versions_of
from gmc.store.shards.rollout import Rollout
from gmc.store.shards.select import KINDS, Seen, group_of

MODEL = "model"
SCALE = 3.0
"""Nats at which a token's color is full."""


@dataclass(frozen=True)
class Shown:
    """One response. tokens: text and number of each, where tokens are colored."""

    seen: Seen
    tokens: Sequence[tuple[str, float]] | None = None


@dataclass(frozen=True)
class Section:
    """Responses under one heading. total: how many there are of this kind; beside: whether they are one group."""

    title: str
    total: int
    responses: Sequence[Shown]
    beside: bool = False


def sections(seen: Sequence[Seen], kinds: Sequence[str], group: str | None, count: int) -> list[Section]:
    """What is shown. Raises `UsageError` for a kind or a group that is not there."""
    if group is not None:
        found = group_of(seen, group)
        return [Section(f"group {group}, problem {found[0].row.problem_id}", len(found), list(map(Shown, found)), beside=True)]
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"--show {kind}: there are {', '.join(KINDS)}{did_you_mean(kind, KINDS)}")
    made = []
    for kind in kinds or KINDS:
        found = KINDS[kind](seen)
        if found or kinds:
            made.append(Section(kind, len(found), list(map(Shown, found[:count]))))
    return made


def colored(made: Sequence[Section], by: str, run: Path) -> list[Section]:
    """The same with a number for every token."""
    from gmc.comparison.token_values import color_tokens

    tokens = iter(color_tokens([one.seen for section in made for one in section.responses], by, run))
    return [replace(section, responses=[replace(one, tokens=next(tokens)) for one in section.responses]) for section in made]


def facts(one: Shown) -> str:
    """Everything about a response but its text, in one line."""
    row = one.seen.row
    said = [f"reward {row.reward:g}", row.status, f"{sampled_length(row)} tokens"]
    if row.turns:
        said.append(f"{(len(row.turns) + 1) // 2} turns")
    if row.finish_reason == "length":
        said.append("cut off")
    names = one.seen.metadata.reward_parts
    if row.reward_parts is not None and len(names) > 1:
        said.append(", ".join(f"{name} {value:g}" for name, value in zip(names, row.reward_parts, strict=True)))
    if row.prediction is not None:
        said.append(f"answer {row.prediction!r}")
    said.append(f"gold {row.answer!r}")
    return "  ".join(
        [*said, f"{row.problem_id}, batch {row.batch}, group {row.group}, sample {row.sample}, {versions_text(row)}"]
    )


def versions_text(row: Rollout) -> str:
    """Which policy versions sampled a response: "v3", or "v3–v5" where several did."""
    first, *_, last = [versions_of(row)[0], *versions_of(row)]
    return f"v{first}" if first == last else f"v{first}–v{last}"


def speakers(turns: Sequence[str]) -> list[tuple[str, str]]:
    """Who said each turn, and what: model and environment alternate, and the model begins."""
    return [(MODEL if place % 2 == 0 else "environment", text) for place, text in enumerate(turns)]


def terminal_view(total: int, made: Sequence[Section]) -> Group:
    """Sections below each other; the responses of one group side by side, as far as the terminal is wide."""
    parts: list[RenderableType] = [Text(f"{total} rollouts", style="dim")]
    for section in made:
        parts.append(Text(f"\n{section.title} ({len(section.responses)} of {section.total})", style="bold"))
        if section.responses and section.beside:
            parts.append(Text(shown(section.responses[0].seen.row.prompt), style="dim"))
        panels = [_panel(one, with_prompt=not section.beside) for one in section.responses]
        parts.append(Columns(panels, equal=True, expand=True) if section.beside and len(panels) > 1 else Group(*panels))
    return Group(*parts)


def _panel(one: Shown, *, with_prompt: bool) -> Panel:
    row = one.seen.row
    body = Text()
    if with_prompt:
        body.append(shown(row.prompt).rstrip("\n") + "\n", style="dim")
    if one.tokens is None and row.turns:
        for speaker, text in speakers(row.turns):
            body.append(f"[{speaker}] ", style="bold")
            body.append(shown(text).strip("\n") + "\n", style="" if speaker == MODEL else "yellow")
    elif one.tokens is None:
        body.append(shown(row.response))
    else:
        for text, value in one.tokens:
            body.append(shown(text), style=_style(value))
    body.append(f"\n{shown(facts(one))}", style="cyan")
    if row.note:
        body.append(f"\n{shown(row.note)}", style="dim")
    return Panel(body, border_style="green" if row.reward > 0 else "red", title=f"reward {row.reward:g}", title_align="left")


def _style(value: float) -> str:
    """Red below 0, green above, the stronger the farther."""
    strength = int(255 - 175 * min(1.0, abs(value) / SCALE))
    return f"on rgb(255,{strength},{strength}) black" if value < 0 else f"on rgb({strength},255,{strength}) black"


def record(made: Sequence[Section]) -> dict[str, Any]:
    """As one JSON object."""
    return {
        "sections": [
            {
                "title": section.title,
                "total": section.total,
                "responses": [
                    {
                        "batch": one.seen.row.batch,
                        "group": one.seen.row.group,
                        "sample": one.seen.row.sample,
                        "policy_version": one.seen.row.policy_version,
                        "policy_versions": versions_of(one.seen.row),
                        "problem_id": one.seen.row.problem_id,
                        "prompt": one.seen.row.prompt,
                        "response": one.seen.row.response,
                        "turns": one.seen.row.turns,
                        "reward": one.seen.row.reward,
                        "reward_parts": dict(
                            zip(one.seen.metadata.reward_parts, one.seen.row.reward_parts or (), strict=False)
                        ),
                        "status": one.seen.row.status,
                        "finish_reason": one.seen.row.finish_reason,
                        "answer": one.seen.row.answer,
                        "prediction": one.seen.row.prediction,
                        "tokens": None if one.tokens is None else [[text, value] for text, value in one.tokens],
                    }
                    for one in section.responses
                ],
            }
            for section in made
        ]
    }
