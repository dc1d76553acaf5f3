"""Finding plug-ins by name: classes that installed distributions register in an entry-point group, gmc's own included.

Each is imported only when it is looked at, so a broken one stops only whoever asks for it. Rules, delays and engines are found
here alike.
"""

import ast
import difflib
import logging
import os
import sys
import textwrap
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from gmc.errors import UsageError

T = TypeVar("T")

log = logging.getLogger(__name__)

SAID_SECONDS = 5.0
"""A wait for somebody's code that takes longer is said."""


class UnknownPluginError(UsageError):
    """No installed distribution registers this name."""


class DuplicatePluginError(UsageError):
    """Two distributions register one name, so neither can be meant."""


class BrokenPluginError(UsageError):
    """It is registered but cannot be imported or is not what the group holds; the cause is chained."""


@dataclass(frozen=True)
class Plugin(Generic[T]):
    """One registered name: the class, or the reason why it cannot be used.

    name: on the command line. distribution: name and version of the package that registers it. value: "module:Class".
    """

    name: str
    distribution: str
    value: str
    cls: type[T] | None
    error: str | None


@contextmanager
def saying_so(what: str) -> Iterator[None]:
    """Say in the log what is waited for, once it takes longer than a few seconds: somebody's code may never come back."""
    timer = threading.Timer(SAID_SECONDS, log.info, (f"still {what}; Ctrl-C stops it",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def plain_call(call: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments in one pair of brackets: "(3, words=['a'])". Raises `ValueError` for anything but plain
    Python values, each name once."""
    try:
        parsed = ast.parse(f"f{call}", mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:  # Python's parser gives up on thousands of signs
        raise ValueError("they cannot be read") from error
    if not isinstance(parsed, ast.Call) or not isinstance(parsed.func, ast.Name):
        raise ValueError("one pair of brackets is what a name may have")
    names = [keyword.arg for keyword in parsed.keywords]
    for name in names:
        if name is None:
            raise ValueError("** is not understood; give each setting by its name")
        if names.count(name) > 1:
            raise ValueError(f"{name} is given {names.count(name)} times")
    try:
        positional = tuple(ast.literal_eval(argument) for argument in parsed.args)
        return positional, {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in parsed.keywords}
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError("they hold more than that") from error


class Registry(Generic[T]):
    """The plug-ins of one entry-point group.

    base: what each must derive from; noun: what one is called in messages; unknown, duplicate, broken: the errors raised.
    """

    def __init__(
        self,
        group: str,
        base: type[T],
        noun: str,
        *,
        unknown: type[UsageError] = UnknownPluginError,
        duplicate: type[UsageError] = DuplicatePluginError,
        broken: type[UsageError] = BrokenPluginError,
    ) -> None:
        self._group = group
        self._base = base
        self._noun = noun
        self._unknown = unknown
        self._duplicate = duplicate
        self._broken = broken

    def plugins(self) -> list[Plugin[T]]:
        """Every registered plug-in by name, each imported on its own. A broken one is listed with its cause."""
        found = []
        for points in self._points().values():
            for point in points:
                cls, error = None, None
                try:
                    cls = self._load(points)
                except (self._duplicate, self._broken) as problem:
                    error = str(problem)
                found.append(Plugin(point.name, _distribution(point), point.value, cls, error))
        return found

    def load(self, name: str) -> type[T]:
        """The class registered as `name`.

        Raises the registry's errors: unknown (with the nearest name, and what was found where), duplicate (naming both
        distributions) or broken (with the import's own error as its cause).
        """
        return self._load(self._find(name))

    def require(self, name: str) -> None:
        """Raise what `load` raises for a name that is unknown or registered twice; imports nothing."""
        self._only(self._find(name))

    def origin(self, cls: type[T]) -> str:
        """Where a class comes from: its package and version, or its module when none registers it."""
        for point in self._points().get(getattr(cls, "name", ""), ()):
            if point.module.split(".")[0] == cls.__module__.split(".")[0]:
                return f"package {_distribution(point)}"
        return f"module {cls.__module__}"

    def _points(self) -> dict[str, list[EntryPoint]]:
        by_name: dict[str, list[EntryPoint]] = defaultdict(list)
        for point in registered(self._group):
            by_name[point.name].append(point)
        return dict(sorted(by_name.items()))

    def _find(self, name: str) -> list[EntryPoint]:
        points = self._points()
        if not isinstance(name, str):  # a settings file may hold a number here
            raise self._unknown(f"no {self._noun} is named {name!r}; a name is text. Found: {self._where(points)}")
        if name not in points:
            close = difflib.get_close_matches(name, points, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise self._unknown(f"no {self._noun} is named {name!r}.{hint} Found: {self._where(points)}")
        return points[name]

    def _only(self, points: list[EntryPoint]) -> EntryPoint:
        if len(points) > 1:
            owners = " and ".join(sorted(_distribution(point) for point in points))
            raise self._duplicate(f"{self._noun} {points[0].name!r} is registered by {owners}; uninstall one of them")
        return points[0]

    def _load(self, points: list[EntryPoint]) -> type[T]:
        point = self._only(points)
        try:
            with saying_so(f"importing {self._described(point)}"):
                cls = point.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an import can fail in any way, SystemExit included; its cause is kept and named
            raise self._broken(f"{self._described(point)} cannot be imported: {type(error).__name__}: {error}") from error
        if not (isinstance(cls, type) and issubclass(cls, self._base)):
            raise self._broken(f"{self._described(point)} is not a subclass of {self._base.__module__}.{self._base.__name__}")
        if getattr(cls, "name", None) != point.name:
            raise self._broken(f"{self._described(point)} calls itself {getattr(cls, 'name', None)!r}; both names must agree")
        return cls

    def _described(self, point: EntryPoint) -> str:
        return f"{self._noun} {point.name!r} of {_distribution(point)} ({point.value})"

    def _where(self, points: Mapping[str, list[EntryPoint]]) -> str:
        names: dict[str, list[str]] = defaultdict(list)
        for same in points.values():
            for point in same:
                names[_distribution(point)].append(point.name)
        if not names:
            return f"nothing (no installed distribution has entry points in the group {self._group!r}; reinstall gmc)."
        return "; ".join(f"{', '.join(owned)} (from {owner})" for owner, owned in sorted(names.items())) + "."


def registered(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group in every installed distribution.

    Reading them all takes some 15 ms, and a sweep asks thousands of times: they are read once for all groups, and again only
    when a folder of the import path has changed.
    """
    return _of_group(group, tuple((folder, _changed(folder)) for folder in sys.path))


@lru_cache(maxsize=64)
def _of_group(group: str, path: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    return tuple(_read(path)(group=group))


@lru_cache(maxsize=16)
def _read(_: tuple[tuple[str, int], ...]) -> Callable[..., Iterable[EntryPoint]]:
    return entry_points().select


def _changed(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:  # import paths may name what does not exist
        return 0


def words_of(error: BaseException) -> str:
    """The text of someone else's error, "" where it cannot even say that."""
    try:
        return str(error)
    except Exception:
        return ""


def in_one_line(error: BaseException) -> str:
    """Type and text of someone else's error, on one line and of bounded length."""
    return textwrap.shorten(f"{type(error).__name__}: {words_of(error)}".rstrip(": "), 300, placeholder=" …")


def _distribution(point: EntryPoint) -> str:
    return _name_and_version(point.dist) if point.dist is not None else "an unnamed distribution"


@lru_cache(maxsize=256)
def _name_and_version(distribution: Distribution) -> str:
    """Either is parsed from its metadata whenever it is asked for. One object is one reading of what was installed."""
    return f"{distribution.name} {distribution.version}"
