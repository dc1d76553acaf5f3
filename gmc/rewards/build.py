"""From what `--reward` says to the reward of a run, with every setting of every part filled in."""

import ast
import hashlib
import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gmc.errors import UsageError, did_you_mean, no_file, plain_words
from gmc.registry import in_one_line
from gmc.rewards.base import Reward
from gmc.rewards.combined import CombinedReward
from gmc.rewards.function import Form, FunctionReward, OnError
from gmc.rewards.registry import load_reward
from gmc.rewards.specs import RewardSpec, labels, parse_reward, with_keywords


def build_reward(
    texts: Sequence[str], *, form: Form = "text", seconds: float = 60.0, on_error: OnError = "stop"
) -> CombinedReward:
    """The reward that these specs describe; the other arguments are for functions (see `FunctionReward`).

    Raises `UsageError` in one line for a spec, a name, a setting or a file that is wrong. No function is imported yet.
    """
    specs = [parse_reward(text) for text in texts]
    if not specs:
        raise UsageError("--reward: nothing is rewarded; name at least one, such as math")
    rewards: list[Reward] = []
    for spec in specs:
        if spec.is_function:
            require_function(spec)
            rewards.append(FunctionReward(spec, form=form, seconds=seconds, on_error=on_error))
        else:
            rewards.append(_registered(spec))
    return CombinedReward(specs, rewards)


def complete(texts: Sequence[str]) -> list[str]:
    """The specs with every setting of a registered reward said, as a run saves them. Raises as `build_reward`."""
    found = []
    for text in texts:
        spec = parse_reward(text)
        if spec.is_function:
            require_function(spec)
            if spec.is_file:  # so that a run goes on from any folder
                spec = replace(spec, target=f"{Path(spec.place).resolve()}:{spec.attribute}")
        else:
            spec = with_keywords(spec, _registered(spec).settings.model_dump(mode="json"))
        found.append(str(spec))
    if not found:
        raise UsageError("--reward: nothing is rewarded; name at least one, such as math")
    return found


def is_binary_reward(texts: Sequence[str]) -> bool:
    """Whether the sum can only be 0 or 1, as far as that is known without importing anybody's function."""
    specs = [parse_reward(text) for text in texts]
    return len(specs) == 1 and specs[0].weight == 1 and not specs[0].is_function and _registered(specs[0]).binary


def short_spec(text: str) -> str:
    """A completed spec for people: the name alone where every setting stands at its default.

    >>> short_spec("math(strict=True)"), short_spec("math(strict=False)")
    ('math', 'math(strict=False)')
    """
    spec = parse_reward(text)
    return spec.target if not spec.is_function and spec.weight == 1 and _is_default(spec) else text


def _is_default(spec: RewardSpec) -> bool:
    fields = load_reward(spec.target).Settings.model_fields
    return all(not fields[name].is_required() and fields[name].default == value for name, value in spec.keywords.items())


def reward_labels(texts: Sequence[str]) -> list[str]:
    """The parts' names, in order."""
    return labels([parse_reward(text) for text in texts])


def code_hashes(texts: Sequence[str]) -> dict[str, str]:
    """The first 16 hex digits of the SHA-256 of every file that a spec names, by its path."""
    return file_hashes(spec.place for spec in map(parse_reward, texts) if spec.is_file)


def file_hashes(paths: Iterable[str]) -> dict[str, str]:
    """The first 16 hex digits of the SHA-256 of each file, by its path. Raises `UsageError` for what is no file."""
    paths = sorted({*paths})
    for path in map(Path, paths):
        if not path.is_file():
            raise UsageError(f"{path}: {no_file(path)}; a run keeps the hash of every file that it uses")
    return {path: hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16] for path in paths}


def _registered(spec: RewardSpec) -> Reward:
    cls = load_reward(spec.target)
    try:
        return cls(cls.Settings(**spec.keywords))
    except ValidationError as error:
        raise UsageError(f"--reward {spec}: {explain_settings(cls, error)}") from error
    except (Exception, SystemExit) as error:  # a plug-in's constructor can fail in any way; its cause is kept and named
        raise UsageError(f"--reward {spec}: cannot be built: {in_one_line(error)}") from error


def explain_settings(cls: Any, error: ValidationError) -> str:
    """What is wrong with the settings given to a plug-in's class (a reward, an environment), in one line."""
    problem: Mapping[str, Any] = error.errors()[0]
    name = ".".join(map(str, problem["loc"]))
    known = ", ".join(cls.Settings.model_fields) or "none"
    if problem["type"] == "extra_forbidden":
        return f"no setting {name}; there are {known}{did_you_mean(name, cls.Settings.model_fields)}"
    if problem["type"] == "missing":
        return f"it needs {name} ({cls.Settings.model_fields[name].description}); write {cls.name}({name}=...)"
    message = plain_words(str(problem["msg"]).removeprefix("Value error, "))
    return f"{name} = {problem['input']!r}: {message}" if name else message


def require_function(spec: RewardSpec) -> None:
    """Refuse a function that is not there, as far as that shows without running anybody's code. Raises `UsageError`."""
    require_names(f"--reward {spec}", spec.place, [spec.attribute])


def require_names(what: str, place: str, wanted: Sequence[str]) -> None:
    """Refuse a file or module that is not there, or a file that defines one of the names not, as far as that shows without
    running it. what: asks for them. Raises `UsageError`."""
    if not place.endswith(".py"):
        if not _is_installed(place.partition(".")[0]) and not Path(f"{place}.py").is_file():
            raise UsageError(f"{what}: no module {place} is installed; a file is written {place}.py")
        return
    path = Path(place)
    if path.exists() and not path.is_file():
        raise UsageError(f"{what}: {path}: {no_file(path)}")
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except OSError as error:
        where = f"{' and '.join(wanted)} would be defined there" if any(wanted) else "functions would be defined there"
        raise UsageError(f"{what}: {path}: {error.strerror}; {where}") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two for what is nested too deep
        raise UsageError(f"{what}: {path} is no Python file: {in_one_line(error)}") from error
    names = _names(tree)
    for name in wanted:
        if names is not None and name not in names:
            functions = ", ".join(sorted(name for name in names if not name.startswith("_"))) or "nothing"
            raise UsageError(f"{what}: {path} defines no {name}; it defines {functions}")


def _is_installed(module: str) -> bool:
    """Whether a worker could import it: __main__ is whatever runs there."""
    return module != "__main__" and importlib.util.find_spec(module) is not None


_OWN_SCOPE = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
"""Names that these bind are not the module's."""


def _names(tree: ast.Module) -> set[str] | None:
    """What a file defines at its top level; None where an import of everything hides it."""
    names: set[str] = set()
    nodes: list[ast.AST] = list(tree.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            if any(alias.name == "*" for alias in node.names):
                return None
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif not isinstance(node, _OWN_SCOPE):
            nodes.extend(ast.iter_child_nodes(node))
    return names
