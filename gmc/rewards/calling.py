"""The process in which a reward function runs: `python -m gmc.rewards.calling`, questions on stdin, answers on stdout.

The function is called as TRL calls it. What it prints goes to standard error; what it raises becomes an answer in one line.
"""

import inspect
import itertools
import math
import reprlib
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from gmc.rewards import serving
from gmc.rewards.serving import Refusal, load_module
from gmc.rewards.wire import is_writable
from gmc.store.shards.rollout import LARGEST_REWARD

Function = Callable[..., Any]


def load_function(place: str, attribute: str, call: tuple[list[Any], dict[str, Any]] | None) -> Function:
    """The function, or what the factory of that name gives. Raises `Refusal`."""
    module = load_module(place)
    function = getattr(module, attribute, None)
    if function is None:
        there = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise Refusal(f"{place} has no {attribute}; it has {', '.join(sorted(there)) or 'no function'}")
    if call is not None:
        try:
            function = function(*call[0], **call[1])
        except BaseException as error:  # the factory is somebody's code
            raise Refusal(f"{place}:{attribute} cannot be called so: {explain(error)}") from error
    if not callable(function):
        raise Refusal(f"{place}:{attribute} is {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


def explain(error: BaseException) -> str:
    """What the function raised and where, in one line."""
    return serving.explain(error, own=(__file__,))


class Logs:
    """What a function hands to `log_extra` and `log_metric` in one call."""

    def __init__(self) -> None:
        self.extra: dict[str, list[Any]] = {}
        self.metrics: dict[str, float] = {}

    def log_extra(self, column: str, values: list[Any]) -> None:
        """One value a response, to be remembered under a name."""
        self.extra[_written(column)] = [_written(value) for value in values]

    def log_metric(self, name: str, value: float) -> None:
        """One number about the batch."""
        self.metrics[_written(name)] = float(value)


def _written(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    if not is_writable(text):
        raise ValueError(f"{text[:40]!r} is logged, and UTF-8 cannot write it: it holds half of a surrogate pair")
    return text


def call_function(function: Function, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Rewards (None: does not apply) and what was logged. inputs: prompts, completions, completion_ids and the columns, each a
    list with one entry a response. Raises `Refusal` for what the function raises and for rewards that are none."""
    logs = Logs()
    count = len(inputs["completions"])  # before the function may change the list
    given = {**inputs, "trainer_state": SimpleNamespace(**state), "log_extra": logs.log_extra, "log_metric": logs.log_metric}
    try:
        rewards = function(**_accepted(function, given))
        if inspect.isawaitable(rewards):
            import asyncio  # a third of the time that a process takes to start, and most functions need none

            rewards = asyncio.run(_wait(rewards))
        if isinstance(rewards, str | bytes | Mapping):
            raise TypeError(f"it gave one {type(rewards).__name__}, not a list of rewards, one a response")
        rewards = list(itertools.islice(rewards, count + 1))
    except BaseException as error:  # somebody's code
        raise Refusal(explain(error)) from error
    if len(rewards) != count:
        raise Refusal(f"it gave {f'more than {count}' if len(rewards) > count else len(rewards)} rewards for {count} responses")
    for name, values in logs.extra.items():
        if len(values) != count:
            raise Refusal(f"log_extra({name!r}) got {len(values)} values for {count} responses")
    return {"rewards": [_number(reward) for reward in rewards], "extra": logs.extra, "metrics": logs.metrics}


async def _wait(awaitable: Any) -> Any:
    return await awaitable


def _accepted(function: Function, given: dict[str, Any]) -> dict[str, Any]:
    """What the function takes by name; everything where it takes any keyword."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some callables written in C tell nothing
        return given
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return given
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in given.items() if name in names}


def _number(reward: Any) -> float | None:
    if reward is None:
        return None
    try:
        number = float(reward)
    except OverflowError as error:  # an integer beyond 1e308, which Python may not even write
        raise Refusal("a reward is an integer too large for a float; give a finite number") from error
    except Exception as error:  # whatever an object of somebody's does when it is asked for its number
        raise Refusal(f"a reward is {reprlib.repr(reward)} ({type(reward).__name__}), not a number") from error
    if not math.isfinite(number):
        raise Refusal(f"a reward is {number}; give a finite number, or None where the function does not apply")
    if abs(number) > LARGEST_REWARD:
        raise Refusal(f"a reward is {number:g}, and rewards are trained on within ±{LARGEST_REWARD:g}; divide what it gives")
    return number


def _answer(question: dict[str, Any], known: dict[str, Function]) -> dict[str, Any]:
    try:
        if "load" in question:
            place, attribute, call = question["load"]
            known["function"] = load_function(place, attribute, call)
            return {"binary": bool(getattr(known["function"], "binary", False))}
        return call_function(known["function"], question["inputs"], question["state"])
    except Refusal as refusal:
        return {"refused": str(refusal)}


def main() -> None:
    """Serve questions until stdin closes."""
    known: dict[str, Function] = {}
    serving.serve(lambda question, remark: _answer(question, known))


if __name__ == "__main__":
    main()
