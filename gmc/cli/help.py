"""What typer makes of commands, put into one style: paragraphs that fill the line, `(default: …)`, arguments in capitals."""

from typing import Any


def tidy_help(command: Any) -> None:
    """Put the help of a command, and of those below it, into one style. Versions of typer differ in theirs."""
    command.help = filled(command.help or "")
    for parameter in command.params:
        if parameter.param_type_name == "argument" and parameter.metavar is None:
            parameter.metavar = parameter.name.upper()
        _say_default(parameter)
    for below in getattr(command, "commands", {}).values():
        tidy_help(below)


def filled(text: str) -> str:
    """Paragraphs as single lines, so that the terminal's width and not the source's breaks them."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _say_default(parameter: Any) -> None:
    shown, value = getattr(parameter, "show_default", False), parameter.default
    if isinstance(shown, str):
        said = shown
    elif not shown or parameter.required or value is None or isinstance(value, bool) or value == "":
        return
    else:
        said = str(value)
    parameter.help = f"{parameter.help} (default: {said})"
    parameter.show_default = False
