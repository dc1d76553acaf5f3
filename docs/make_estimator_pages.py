"""Makes docs/estimators/: one page a rule and an index, from the rules' own declarations.

The part of a page above the marker comes from the class; the part below it is written by hand and kept. Run it after changing
a rule: `python docs/make_estimator_pages.py`. With `--check` it only says which files are out of date, and fails if any is.
"""

import importlib
import inspect
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from gmc.estimators.base import Estimator
from gmc.estimators.batch import Need
from gmc.estimators.setting_docs import describe_settings

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "estimators"
MARKER = "<!-- Above: made from the class by docs/make_estimator_pages.py. Below: written by hand. -->"
EMPTY_SECTIONS = "\n\n## When to use it\n\n## When it breaks\n"

INDEX_HEAD = """\
# Correction rules

Made by docs/make_estimator_pages.py. A rule turns stale rollouts into a gradient; `gmc train --estimator NAME` picks one. Rules
outside gmc come with the package named, `pip install ./plugins/PACKAGE`. How to add one: [writing an
estimator](../writing-an-estimator.md).

"Certain" says how sure the formula is; each page gives the detail. *exact*: stated by the paper, or read in the authors' or a
framework's code. *third-party*: as others describe the paper. *reconstructed*: parts of it are. *guess*: a threshold, kernel or
normalizer is ours because no source states it. *ours*: the rule comes from this project.
"""

INDEX_TAIL = """
## Not implemented

| rule | why |
|---|---|
| COPC | needs a value critic; gmc's rules are critic-free |
| SAO | needs a value critic; its weight alone is [dis](dis.md) |
| BRACE | no public definition found |
| PACE | not a loss: it schedules which finished rollouts are trained |
"""


@dataclass(frozen=True)
class Registered:
    """A rule and where it is registered. folder: the package's, relative to the repository."""

    rule: type[Estimator]
    package: str
    folder: Path


def registered() -> list[Registered]:
    """Every rule in the entry points of gmc and of the packages under plugins/, gmc's first, then by package."""
    found = []
    for file in [ROOT / "pyproject.toml", *sorted((ROOT / "plugins").glob("*/pyproject.toml"))]:
        project = tomllib.loads(file.read_text("utf-8"))["project"]
        if str(file.parent) not in sys.path:
            sys.path.insert(0, str(file.parent))
        for value in project["entry-points"].get("gmc.estimators", {}).values():
            module, _, name = value.partition(":")
            rule = getattr(importlib.import_module(module), name)
            found.append(Registered(rule, project["name"], file.parent.relative_to(ROOT)))
    return found


def certainty(rule: type[Estimator]) -> str:
    """One word for how sure a rule's formula is."""
    if rule.reference.startswith("Ours"):
        return "ours"
    if "GUESS" in rule.evidence:
        return "guess"
    words = rule.evidence.lower()
    if "reconstruct" in words:
        return "reconstructed"
    return "third-party" if "third-party" in words else "exact"


def page_head(one: Registered) -> str:
    """The part of a page that comes from the class."""
    rule = one.rule()
    file = Path(inspect.getfile(one.rule)).resolve().relative_to(ROOT)
    install = "built in" if one.package == "gmc-rl" else f"{one.package} (`pip install ./{one.folder}`)"
    bounded = "bounded" if rule.bounded else "unbounded; log-ratios are clamped at ±20"
    vanish = "contributes exactly zero" if rule.equal_rewards_vanish else "still contributes"
    facts = {
        "code": f"[{file}](../../{file}), `{one.rule.__name__}`",
        "package": install,
        "scope": f"{rule.scope}: how far one weight looks",
        "needs": ", ".join(need.value for need in Need if need in rule.needs) or "nothing",
        "loss normalizer": str(rule.normalizer),
        "weights": f"{bounded}; {rule.on_policy_weight:g} times the advantage on-policy",
        "group of equal rewards": vanish,
        "reference": rule.reference,
        "evidence": rule.evidence,
    }
    rows = "\n".join(f"| {key} | {_cell(value)} |" for key, value in facts.items())
    return (
        f"# {rule.name}\n\n{rule.summary}.\n\n    {rule.formula}\n\n{inspect.cleandoc(one.rule.__doc__ or '')}\n\n"
        f"| | |\n|---|---|\n{rows}\n\n## Settings\n\n{_settings(one.rule)}\n{MARKER}"
    )


def _settings(rule: type[Estimator]) -> str:
    settings = describe_settings(rule)
    if not settings:
        return "None.\n"
    rows = [
        f"| `estimator.{one.name}` | {_cell(one.default)} | {_cell(one.allowed)} | {_cell(one.description)} |"
        for one in settings
    ]
    return "| setting | default | allowed | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def index(rules: list[Registered]) -> str:
    """The list of all rules."""
    rows = [
        f"| [{one.rule.name}]({one.rule.name}.md) | {one.package} | {one.rule().scope} | {_cell(one.rule.summary)} | "
        f"{certainty(one.rule)} |"
        for one in rules
    ]
    head = "| rule | package | scope | what it does | certain |\n|---|---|---|---|---|\n"
    return f"{INDEX_HEAD}\n{head}" + "\n".join(rows) + f"\n{INDEX_TAIL}"


def pages() -> dict[Path, str]:
    """Every file of docs/estimators/ as it should be, with what is written by hand in the files as they are."""
    rules = registered()
    wanted = {PAGES / "README.md": index(rules)}
    for one in rules:
        path = PAGES / f"{one.rule.name}.md"
        written = path.read_text("utf-8").partition(MARKER)[2] if path.exists() else ""
        wanted[path] = page_head(one) + (written or EMPTY_SECTIONS)
    return wanted


def main() -> int:
    """Write what is out of date, or with --check only name it."""
    check = "--check" in sys.argv[1:]
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale:
        print(f"{'out of date' if check else 'wrote'}: {path.relative_to(ROOT)}")
        if not check:
            path.write_text(pages()[path], "utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
