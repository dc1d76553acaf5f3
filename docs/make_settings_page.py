"""Makes docs/settings.md, one row a setting, from the settings' own fields.

Run it after changing a setting: `python docs/make_settings_page.py`. With `--check` it only says whether the page is out of
date, and fails if it is.
"""

import sys
from pathlib import Path

from gmc.config.fields import allowed_values, default_text, leaf_fields
from gmc.config.flags import EVAL_SETTING_OF, flag_names
from gmc.config.settings import RunSettings

PAGE = Path(__file__).resolve().parent / "settings.md"

HEAD = """\
# Settings

Made by docs/make_settings_page.py from the fields in gmc/config/settings.py.

Every setting has a dotted key. `--set KEY=VALUE` changes any of them, a recipe is a TOML file of them, and some have a flag.
Later layers win: defaults, what an earlier command of the same run resolved, the recipe, flags, `--set`.

`--dry-run` prints every setting in force, each with its origin, and `RUN/settings/COMMAND.toml` keeps both. An origin is
`default`, `recipe FILE`, `flag --x`, `--set`, `argument` (of a call from Python), or what decided a value that nobody said:
`model`, `problems`, `rule`, `benchmark`, `device`, `template` (of the prompts), `code` (the hash of the files that a reward or
an environment is in). `run: …` before it: an earlier command of the run resolved it. Say `auto` of a setting that something
decides, and it is chosen anew.

`--resume` takes every value from the run, so a default that has changed since does not matter. What was chosen for the device
stays too; `--set model.device=cpu` moves the run to other hardware, and `model.compute_dtype` remains as it was. Other
commands choose device and dtype where they run.

A rule's own settings (`estimator.epsilon`, …) are on [its page](estimators/README.md).
"""


def page() -> str:
    """The page as it should be."""
    flags = flag_names() | {key: f"gmc eval {flag}" for key, flag in flag_names(EVAL_SETTING_OF).items() if "eval." in key}
    parts = [HEAD]
    tables: dict[str, list[str]] = {"": []}
    docs = {"": "Settings that belong to no group."}
    for name, field in RunSettings.model_fields.items():
        section = field.annotation
        if section is not None and hasattr(section, "model_fields"):
            docs[name] = (section.__doc__ or "").strip()
            fields = leaf_fields(section, f"{name}.")
        else:
            fields = {name: field}
        for key, each in fields.items():
            flag = flags.get(key) or flags.get(f"{key}.name", "")
            cells = [f"`{key}`", f"`{flag}`" if flag else "", default_text(each), allowed_values(each), each.description or ""]
            row = " | ".join(cell.replace("|", r"\|") for cell in cells)
            tables.setdefault(key.rpartition(".")[0] and name, []).append(f"| {row} |")
    for name, rows in tables.items():
        head = "| setting | flag | default | allowed | meaning |\n|---|---|---|---|---|\n"
        parts.append(f"## {name or 'The run'}\n\n{docs[name]}\n\n{head}" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def main() -> int:
    """Write the page if it is out of date, or with --check only say so."""
    stale = not PAGE.exists() or PAGE.read_text("utf-8") != page()
    check = "--check" in sys.argv[1:]
    if stale:
        print(f"{'out of date' if check else 'wrote'}: docs/{PAGE.name}")
        if not check:
            PAGE.write_text(page(), "utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
