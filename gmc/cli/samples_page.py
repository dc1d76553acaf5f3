"""Rollouts as one HTML page: no script, no font, no picture from elsewhere, and readable on a phone."""

from collections.abc import Sequence
from html import escape

from gmc.cli.samples_view import MODEL, SCALE, Section, Shown, facts, speakers
from gmc.cli.streams import shown

HEAD = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 75rem; overflow-wrap: anywhere; }}
h1 {{ font-size: 1.3rem; }}
h2 {{ font-size: 1.1rem; margin-top: 2rem; }}
article {{ border: 1px solid #8886; border-left: 4px solid #c33; border-radius: 4px; padding: .5rem .75rem; margin: .75rem 0; }}
article.good {{ border-left-color: #2a2; }}
.beside {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); gap: .75rem; }}
.beside article {{ margin: 0; }}
pre {{ white-space: pre-wrap; font: 14px/1.45 ui-monospace, monospace; margin: .25rem 0; }}
.prompt, .facts {{ opacity: .75; }}
.facts {{ font-size: .85rem; }}
.t {{ color: #000; }}
.told {{ background: #fb06; }}
</style>
</head>
<body>
"""


def page(run: str, total: int, made: Sequence[Section]) -> str:
    """The whole page. Texts are escaped, and control characters written out."""
    title = f"Samples of {run}"
    parts = [HEAD.format(title=_safe(title)), f"<h1>{_safe(title)}</h1>\n<p>{total} rollouts</p>\n"]
    for section in made:
        parts.append(f"<h2>{_safe(section.title)} ({len(section.responses)} of {section.total})</h2>\n")
        if section.beside and section.responses:
            parts.append(f'<pre class="prompt">{_safe(section.responses[0].seen.row.prompt)}</pre>\n<div class="beside">\n')
        parts += [_article(one, with_prompt=not section.beside) for one in section.responses]
        if section.beside and section.responses:
            parts.append("</div>\n")
    return "".join([*parts, "</body>\n</html>\n"])


def _article(one: Shown, *, with_prompt: bool) -> str:
    row = one.seen.row
    prompt = f'<pre class="prompt">{_safe(row.prompt)}</pre>\n' if with_prompt else ""
    if one.tokens is not None:
        text = "".join(_token(*token) for token in one.tokens)
    elif row.turns:
        text = "".join(
            f'<span class="{"said" if speaker == MODEL else "told"}" title="{speaker}">{_safe(turn)}</span>'
            for speaker, turn in speakers(row.turns)
        )
    else:
        text = _safe(row.response)
    note = f'<p class="facts">{_safe(row.note)}</p>\n' if row.note else ""
    good = ' class="good"' if row.reward > 0 else ""
    return f'<article{good}>\n{prompt}<pre>{text}</pre>\n<p class="facts">{_safe(facts(one))}</p>\n{note}</article>\n'


def _token(text: str, value: float) -> str:
    strength = int(255 - 175 * min(1.0, abs(value) / SCALE))
    red, green = (255, strength) if value < 0 else (strength, 255)
    return f'<span class="t" title="{value:.2f}" style="background:rgb({red},{green},{strength})">{_safe(text)}</span>'


def _safe(text: str) -> str:
    return escape(shown(text.encode("utf-8", "backslashreplace").decode()))
