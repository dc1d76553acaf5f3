"""What a data file calls tests of code: assertions, or pairs of input and output; and where a response's code stands."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from gmc.errors import DataError

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[ \t]*([\w+.-]*)[^\n]*\n(.*?)(?:^[ \t]*(?:```|~~~)|\Z)", re.DOTALL | re.MULTILINE)
_PYTHON = ("python", "py", "python3")
_INPUTS, _OUTPUTS = ("input", "inputs", "stdin"), ("output", "outputs", "stdout", "expected_output")


@dataclass(frozen=True)
class CodeTest:
    """One test. source: Python that raises when it fails, run behind the code; or stdin with the stdout that is wanted."""

    source: str = ""
    stdin: str = ""
    stdout: str | None = None


def extract_code(response: str) -> str | None:
    """The last fenced block of Python, else the last fenced block, else the whole response; None where there is nothing.

    A block that is not closed goes to the end of the response.
    """
    blocks = [(match[1].lower(), match[2]) for match in _FENCE.finditer(response)]
    chosen = [text for language, text in blocks if language in _PYTHON] or [text for _, text in blocks] or [response]
    return chosen[-1] if chosen[-1].strip() else None


def read_tests(value: Any) -> list[CodeTest]:
    """The tests in a field's value. Raises `DataError` with the reason why there are none.

    Known forms: Python text (HumanEval's `test`); a list of such (MBPP's `test_list`); a list of objects with input and output;
    an object with two lists, inputs and outputs (APPS' `input_output`); any of the last three as JSON text.
    """
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except ValueError:
            return [CodeTest(source=value)] if value.strip() else _refuse("the tests are empty")
        except RecursionError:
            _refuse("the tests are JSON that is nested too deeply")
        return read_tests(parsed) if isinstance(parsed, list | dict) else [CodeTest(source=value)]
    if isinstance(value, Mapping):
        return _pairs(_entry(value, _INPUTS), _entry(value, _OUTPUTS))
    if isinstance(value, Sequence) and value:
        return [test for item in value for test in _one(item)]
    _refuse("there are no tests")


def _one(item: Any) -> list[CodeTest]:
    if isinstance(item, str) and item.strip():
        return [CodeTest(source=item)]
    if isinstance(item, Mapping):
        return _pairs([_entry(item, _INPUTS)], [_entry(item, _OUTPUTS)])
    _refuse(f"a test is {type(item).__name__}, neither Python text nor an object with input and output")


def _entry(item: Mapping[str, Any], names: Sequence[str]) -> Any:
    for name in names:
        if name in item:
            return item[name]
    _refuse(f"a test has no {names[0]} (it has {', '.join(map(str, item)) or 'nothing'})")


def _pairs(inputs: Any, outputs: Any) -> list[CodeTest]:
    if not (isinstance(inputs, list) and isinstance(outputs, list) and len(inputs) == len(outputs) > 0):
        _refuse("inputs and outputs are not two lists of one length")
    return [CodeTest(stdin=_text(given), stdout=_text(wanted)) for given, wanted in zip(inputs, outputs, strict=True)]


def _text(value: Any) -> str:
    """Standard input or output; APPS has some as lists of lines."""
    if isinstance(value, list):
        return "\n".join(map(str, value))
    return value if isinstance(value, str) else str(value)


def _refuse(reason: str) -> NoReturn:
    raise DataError(reason)


def same_output(found: str, wanted: str) -> bool:
    """Whether two outputs agree but for white space at the ends of lines and of the whole."""
    return [line.rstrip() for line in found.strip().splitlines()] == [line.rstrip() for line in wanted.strip().splitlines()]
