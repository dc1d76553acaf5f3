"""Draws the loop between the commands as loop-light.svg and loop-dark.svg beside this file: `python docs/make_loop_picture.py`.

Two files, since a picture cannot know which of its page's two palettes is on. `--check` only compares.
"""

import sys
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
WIDTH, HEIGHT, BOX_WIDTH, BOX_HEIGHT = 560, 330, 160, 92
COLUMNS, ROWS = (8, 200, 392), (8, 214)
PALETTES = {
    "light": {"text": "#1f2430", "soft": "#4a5160", "line": "#5c6bc0", "data": "#eef0fa", "command": "#d9def6"},
    "dark": {"text": "#e8eaf2", "soft": "#b6bccb", "line": "#8c9eff", "data": "#262b3d", "command": "#343c63"},
}
BOXES = [  # column, row, kind, title, lines
    (0, 0, "data", "problems", ("yours, or built in",)),
    (1, 0, "command", "gmc rollout", ("samples, rewards",)),
    (2, 0, "data", "*.parquet", ("a row a response",)),
    (2, 1, "command", "gmc train", ("rule: gmc, tic, yours", "delay: 0, ramp:64, …")),
    (1, 1, "data", "policies", ("v000400 and others",)),
    (0, 1, "command", "gmc eval", ("95 % intervals",)),
]
ARROWS = [  # from, to; label and where it stands
    ((168, 54), (198, 54), "", (0, 0)),
    ((360, 54), (390, 54), "", (0, 0)),
    ((472, 100), (472, 212), "D updates later", (464, 162)),
    ((392, 260), (362, 260), "", (0, 0)),
    ((200, 260), (170, 260), "", (0, 0)),
    ((280, 214), (280, 102), "newest policy", (272, 162)),
]
TITLE = "The loop: problems, rollouts, training at a delay, policies, evaluation"


def box(column: int, row: int, kind: str, title: str, lines: tuple[str, ...], colors: dict[str, str]) -> str:
    """One rounded box with a title and smaller lines below it."""
    x, y = COLUMNS[column], ROWS[row]
    middle, top = x + BOX_WIDTH / 2, y + BOX_HEIGHT / 2 + 7 - 10 * len(lines)
    mono = "ui-monospace, Menlo, Consolas, monospace" if kind == "command" else "inherit"
    bold = f'font-size="19" font-weight="700" font-family="{mono}" fill="{colors["text"]}"'
    texts = [f'<text x="{middle:g}" y="{top:g}" {bold}>{title}</text>']
    texts += [
        f'<text x="{middle:g}" y="{top + 21 * (place + 1):g}" font-size="14.5" fill="{colors["soft"]}">{escape(line)}</text>'
        for place, line in enumerate(lines)
    ]
    shape = (
        f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="10" fill="{colors[kind]}" '
        f'stroke="{colors["line"]}" stroke-width="{2 if kind == "command" else 1}"/>'
    )
    return "\n".join([shape, *texts])


def arrow(start: tuple[int, int], end: tuple[int, int], label: str, place: tuple[int, int], colors: dict[str, str]) -> str:
    """A line with a head, and its label to the left."""
    line = (
        f'<path d="M{start[0]} {start[1]}L{end[0]} {end[1]}" stroke="{colors["line"]}" stroke-width="2.5" '
        'marker-end="url(#head)"/>'
    )
    if not label:
        return line
    return (
        f'{line}\n<text x="{place[0]}" y="{place[1]}" font-size="16" text-anchor="end" fill="{colors["text"]}">{label}</text>'
    )


def picture(colors: dict[str, str]) -> str:
    """The whole drawing."""
    head = (
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="5" markerHeight="5" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{colors["line"]}"/></marker>'
    )
    parts = [box(*each, colors) for each in BOXES] + [arrow(*each, colors) for each in ARROWS]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT - 16}" role="img" text-anchor="middle" '
            'font-family="system-ui, -apple-system, Segoe UI, Roboto, sans-serif">',
            f"<title>{TITLE}</title>",
            f"<defs>{head}</defs>",
            *parts,
            "</svg>\n",
        ]
    )


def main() -> int:
    """Write, or with --check compare. Exit code 1 when a file differs."""
    stale = []
    for name, colors in PALETTES.items():
        path, text = HERE / f"loop-{name}.svg", picture(colors)
        if "--check" not in sys.argv:
            path.write_text(text, "utf-8")
        elif not path.exists() or path.read_text("utf-8") != text:
            stale.append(path.name)
    if stale:
        print(f"{', '.join(stale)}: not what docs/make_loop_picture.py draws; run it")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
