"""The process in which a tool's functions run: `python -m gmc.environments.calling`, questions on stdin, answers on stdout.

    {"load": [PLACE, [NAME, …]]}              what the functions are, as the model is told: {"functions": [line, …]}
    {"call": TEXT, "characters": LONGEST}     what the function that the text calls gives: {"answer": TEXT}, or {"error": why};
                                              before it is called, {"at": its name}

A call is text of the model. It is read as a literal and never evaluated: `name(1, b="x")`, or a JSON object with `name` and
`arguments`.
"""

import ast
import inspect
import json
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

from gmc.rewards.serving import Refusal, brief, load_module, serve, where
from gmc.rewards.wire import is_writable

Function = Callable[..., Any]

LONGEST_CALL = 10_000
"""Characters of a call. Reading a longer one would take Python long before any function is called."""


class CallError(Exception):
    """Why there is no result, in words for the model. function: the one that failed, "" where none was called; line: where, for
    people."""

    def __init__(self, text: str, function: str = "", line: str = "") -> None:
        super().__init__(text)
        self.function, self.line = function, line


def load_functions(place: str, names: list[str]) -> dict[str, Function]:
    """The functions of a file or module by name: those named, or the public ones that it defines. Raises `Refusal` in one line
    that names the file, the function and the cure."""
    module = load_module(place)
    public = _public(module, place)
    found = {}
    for name in names or public:
        function = getattr(module, name, None)
        if function is not None and not callable(function):
            raise Refusal(f"{place}: {name} is {type(function).__name__}, not a function")
        if function is None:
            there = ", ".join(public) or "no function"
            raise Refusal(f"{place} has no function {name}; it has {there}")
        found[name] = function
    if not found:
        raise Refusal(f"{place} defines no function; define one, or name imported ones behind a colon, as in {place}:sqrt")
    return found


def _public(module: Any, place: str) -> list[str]:
    """What a module offers: what it says in `__all__`, or the functions that it defines under names of the public."""
    said = getattr(module, "__all__", None)
    if not said:
        own = (
            name for name, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == module.__name__
        )
        return [name for name in own if not name.startswith("_")]
    if not isinstance(said, list | tuple) or not all(isinstance(name, str) for name in said):
        raise Refusal(f"{place}: __all__ is {reprlib.repr(said)}, not a list of names")
    gone = next((name for name in said if not hasattr(module, name)), None)
    if gone is not None:
        raise Refusal(f"{place}: __all__ names {gone}, which is not defined there")
    return list(said)


def described(place: str, name: str, function: Function) -> str:
    """A function as the model is told of it: its name, its signature, its docstring. Raises `Refusal` for one without."""
    text = " ".join((inspect.getdoc(function) or "").split())
    if not text:
        raise Refusal(f"{place}: {name} has no docstring, which is what the model is told of it; write one")
    try:
        told = f"{name}{inspect.signature(function)}: {text}"
    except Exception as error:  # a default value may be an object of any kind, which the signature shows
        raise Refusal(f"{place}: {name} has no signature that Python can tell; wrap it in a function of your own") from error
    if not is_writable(told):
        raise Refusal(f"{place}: the docstring or signature of {name} holds half of a surrogate pair, which UTF-8 cannot write")
    return told


def read_call(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Name, arguments and named arguments of a call as a model writes it. Raises `CallError`."""
    text = text.strip()
    if len(text) > LONGEST_CALL:
        raise CallError(f"more than {LONGEST_CALL} characters")
    try:
        if text.startswith("{"):
            record = json.loads(text)
            return str(record["name"]), [], dict(record.get("arguments") or {})
        tree = ast.parse(text, mode="eval").body
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and all(keyword.arg for keyword in tree.keywords):
            named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in tree.keywords}
            return tree.func.id, [ast.literal_eval(argument) for argument in tree.args], named
    except (SyntaxError, ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError):
        pass  # whatever is wrong with it, the model is told how to write it
    raise CallError("not a call; write name(arguments) with plain values")


def call_function(functions: Mapping[str, Function], text: str, characters: int, remark: Callable[[str], None]) -> str:
    """What the called function gives, as text of at most so many characters. remark: is told its name before it is called.
    Raises `CallError`."""
    name, arguments, named = read_call(text)
    if name not in functions:
        raise CallError(f"no function {name[:60]}; there are {', '.join(functions)}")
    function = functions[name]
    try:
        inspect.signature(function).bind(*arguments, **named)
    except TypeError as error:
        raise CallError(f"{name}: {error}") from error
    remark(name)
    try:
        value = function(*arguments, **named)
        if inspect.isawaitable(value):
            import asyncio  # a third of the time that a process takes to start, and most functions need none

            value = asyncio.run(_wait(value))
        answer = value if isinstance(value, str) else str(value)
    except BaseException as error:  # somebody's code
        raise CallError(brief(error), name, where(error, own=(__file__,))) from error
    answer = answer.encode("utf-8", "replace").decode("utf-8")
    return answer if len(answer) <= characters else f"{answer[:characters]}… (cut at {characters} characters)"


async def _wait(awaitable: Any) -> Any:
    return await awaitable


def _answer(question: dict[str, Any], functions: dict[str, Function], remark: Callable[[str], None]) -> dict[str, Any]:
    try:
        if "load" in question:
            place, names = question["load"]
            functions.update(load_functions(place, names))
            return {"functions": [described(place, name, function) for name, function in functions.items()]}
        return {"answer": call_function(functions, question["call"], question["characters"], remark)}
    except Refusal as refusal:
        return {"refused": str(refusal)}
    except CallError as error:
        return {"error": str(error), "function": error.function, "line": error.line}


def main() -> None:
    """Serve questions until stdin closes."""
    functions: dict[str, Function] = {}
    serve(lambda question, remark: _answer(question, functions, remark))


if __name__ == "__main__":
    main()
