"""Layers of settings: what an earlier command of the run resolved < recipe < flags < --set. Whoever speaks last wins.

Values are kept flat, by dotted key, so that a layer is laid over another by saying its keys one by one. What no layer says is
filled in by `gmc.resolving.resolve`.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from gmc.config.fields import AUTO, derived, leaf_fields
from gmc.config.file_kinds import RECIPE, require_file_of
from gmc.config.recipes import find_recipe
from gmc.config.settings import RunSettings
from gmc.errors import UsageError, did_you_mean, plain_words

Tree = dict[str, Any]
MAX_DEPTH = 20
MAX_RECIPE_BYTES = 2**20
_DEEP_KEY = re.compile(r"(?<![\w\"'-])(?:[\w\"'-]+[ \t]*\.[ \t]*){20}")
"""A dotted key deeper than any setting: the TOML reader takes minutes over a very deep one."""
DEFAULT = "default"
RUN = "run: "
"""Origin of what an earlier command of the run resolved; what follows is where that command had it from."""

FIELDS = leaf_fields(RunSettings)
CHOSEN = {choice.origin for setting in FIELDS.values() if (choice := derived(setting))}
"""Origins of values that nobody said, but that something else decides."""


@dataclass
class Layers:
    """What has been said so far. values: by dotted key; origins: who said each; saved_in: the file in which an earlier command
    of the run saved the first of them, "" for none."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    saved_in: str = ""

    def set(self, key: str, value: Any, origin: str) -> None:
        """Lay one value over what was said before.

        "auto" takes back what was said. A value chosen for another model, rule, … than the one now named is taken back, too.
        """
        key = _rule_key(key, value)
        for around in [known for known in self.values if known.startswith(f"{key}.") or key.startswith(f"{known}.")]:
            self._take_back(around)
        if value == AUTO and is_derived(key):
            self._take_back(key)
            return
        changed = key in self.values and self.values[key] != value
        if changed and key.startswith("estimator.") and key.endswith(".name"):
            for known in [known for known in self.values if known.startswith(key.removesuffix("name"))]:
                self._take_back(known)  # settings of the rule that was named before
        if changed:
            for known in [known for known in self.values if self._was_chosen_by(key, known)]:
                self._take_back(known)
        self.values[key], self.origins[key] = value, origin

    def set_all(self, tree: Mapping[str, Any], origin: str) -> None:
        """Lay a whole tree over what was said before. Names go first, since naming a rule drops another rule's settings."""
        flat = dict(flatten(tree))
        keys = {key: _rule_key(key, value) for key, value in flat.items()}
        for key in sorted(flat, key=lambda key: (not keys[key].endswith(".name"), keys[key].count("."))):
            self.set(key, flat[key], origin)

    def only(self, wanted: Callable[[str], bool]) -> "Layers":
        """What has been said of some keys."""
        keys = [key for key in self.values if wanted(key)]
        return Layers({key: self.values[key] for key in keys}, {key: self.origins[key] for key in keys}, self.saved_in)

    @property
    def as_saved(self) -> "Layers":
        """What was read from `saved_in` and nobody has said otherwise since."""
        return self.only(lambda key: self.origins[key].startswith(RUN))

    def _was_chosen_by(self, key: str, known: str) -> bool:
        choice = derived(field_of(known))
        return choice is not None and choice.on == key and self.origins[known].removeprefix(RUN) in CHOSEN

    def _take_back(self, key: str) -> None:
        self.values.pop(key, None)
        self.origins.pop(key, None)


def field_of(key: str) -> FieldInfo:
    """The field behind a dotted key, which may go into a field that is a table."""
    return FIELDS[key] if key in FIELDS else field_of(key.rpartition(".")[0])


def is_derived(key: str) -> bool:
    """Whether a setting's default is chosen by something else."""
    return key in FIELDS and derived(FIELDS[key]) is not None


def lay(
    *,
    earlier: Layers | None = None,
    recipe: str | None = None,
    flags: Mapping[str, Any] | None = None,
    flag_names: Mapping[str, str] | None = None,
    assignments: Sequence[str] = (),
) -> Layers:
    """All layers, one over the other.

    earlier: what earlier commands of the same run resolved; recipe: a recipe's name or file; flags: dotted key to value, None
    meaning "not given"; flag_names: what the user calls these keys; assignments: the `key=value` texts of `--set`.
    Raises `UsageError` naming the layer and the key.
    """
    layers = earlier.only(lambda key: True) if earlier else Layers()
    if "estimator.name" not in layers.values:
        layers.set_all({"estimator": FIELDS["estimator"].get_default(call_default_factory=True)}, DEFAULT)
    if recipe is not None:
        path = find_recipe(recipe)
        tree = read_toml(path)
        require_file_of(RECIPE, tree, path)
        layers.set_all(check(tree, f"recipe {path}"), f"recipe {path}")
    for key, value in (flags or {}).items():
        if value is not None:
            _require_text(value)
            name = (flag_names or {}).get(key)
            check(nest(key, value), name or "settings")
            layers.set_all(nest(key, value), f"flag {name}" if name else "argument")
    for assignment in assignments:
        layers.set_all(check(parse_assignment(assignment), f"--set {assignment}"), "--set")
    return layers


def _rule_key(key: str, value: Any) -> str:
    """`estimator = "tic"` and `estimator.base = "gmc"` name a rule, whose settings may stand beside the name."""
    names_a_rule = isinstance(value, str) and (key == "estimator" or (key.startswith("estimator.") and key.endswith(".base")))
    return f"{key}.name" if names_a_rule else key


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a tree with its dotted key.

    >>> dict(flatten({"a": {"b": 1, "c": {"d": 2}}}))
    {'a.b': 1, 'a.c.d': 2}
    """
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def nest(dotted: str, value: Any) -> Tree:
    """`nest("a.b", 1)` is `{"a": {"b": 1}}`."""
    for part in reversed(dotted.split(".")):
        value = {part: value}
    return dict(value)


def unflatten(values: Mapping[str, Any]) -> Tree:
    """The inverse of `flatten`."""
    tree: Tree = {}
    for key, value in values.items():
        *sections, name = key.split(".")
        table = tree
        for section in sections:
            table = table.setdefault(section, {})
        table[name] = value
    return tree


def _require_text(value: Any) -> None:
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise UsageError(f"{value.encode('utf-8', 'backslashreplace').decode()}: not valid UTF-8 text; type it again")


def parse_assignment(text: str) -> Tree:
    """`key=value` as a tree; the value is read as TOML (numbers, booleans, lists), anything else is text."""
    _require_text(text)
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set {text}: write it as key=value, for example --set estimator.epsilon=0.4")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    except (ValueError, RecursionError):
        raise UsageError(f"--set {key}: its value is nested too deeply or has too many digits") from None
    tree = {key.strip(): parsed}
    _require_shallow(tree, f"--set {key[:80]}")
    return nest(key.strip(), parsed)


def read_toml(path: Path) -> Tree:
    """What a recipe or a study says; raises `UsageError` naming the file and line when it is not TOML."""
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path}: not a plain file, which a file of settings is")
        if path.stat().st_size > MAX_RECIPE_BYTES:
            raise UsageError(f"{path}: larger than {MAX_RECIPE_BYTES} bytes, which no file of settings is")
        text = path.read_text("utf-8")
        if _DEEP_KEY.search(text):
            raise UsageError(f"{path}: nested more than {MAX_DEPTH} levels deep, which no setting is")
        tree = tomllib.loads(text)
    except UsageError:
        raise
    except RecursionError:
        raise UsageError(f"{path}: nested more than {MAX_DEPTH} levels deep, which no setting is") from None
    except ValueError as error:
        raise UsageError(f"{path}: not a TOML file ({error})") from error
    _require_shallow(tree, str(path))
    return tree


def _require_shallow(tree: Any, origin: str) -> None:
    """Refuse tables and lists that are nested deeper than any setting, before anything walks through them."""
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
    if level or any(key.count(".") >= MAX_DEPTH for key in tree):
        raise UsageError(f"{origin}: nested more than {MAX_DEPTH} levels deep, which no setting is")


def check(tree: Tree, origin: str) -> Tree:
    """The tree of one layer, if what it says is allowed. Raises `UsageError` with the first problem in one line."""
    try:
        RunSettings.model_validate(tree)
    except ValidationError as error:
        for problem in error.errors():
            key = ".".join(str(part) for part in problem["loc"])
            if problem["type"] != "missing" and not (problem["input"] == AUTO and is_derived(key)):
                raise UsageError(f"{origin}: {_explain(key, problem)}") from error
    return tree


def _explain(key: str, problem: Any) -> str:
    """A problem of a validation in one line, with the nearest known key for a misspelt one."""
    if problem["type"] == "extra_forbidden":
        own = "" if "." in key else f"one of the rule is written estimator.{key}, and "
        return f"unknown setting {key}{did_you_mean(key, FIELDS) or f'; {own}--dry-run prints every setting'}"
    if problem["type"] == "string_pattern_mismatch":
        return f"{key} = {problem['input']!r}: not understood; it is {field_of(key).description}"
    message = plain_words(problem["msg"].removeprefix("Value error, "))
    return f"{key} = {problem['input']!r}: {message[0].lower()}{message[1:]}"
