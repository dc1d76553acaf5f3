"""What the library logs, as a person at a terminal sees it: one plain line a message, on stderr, beside a progress bar."""

import logging

from gmc.cli.output import VERBOSE, level, stamped, stderr
from gmc.errors import one_line

LIBRARY = "gmc"


class ConsoleHandler(logging.Handler):
    """Prints messages through rich, so that a live progress bar stays below them. Warnings and errors say what they are."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        kind = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        where = f"{record.name}: " if level() <= VERBOSE else ""
        stderr.say(stamped(f"{where}{kind}{one_line(record.getMessage())}"))


def show_logs(least: int = logging.INFO) -> None:
    """Send the library's messages from level `least` on to the terminal, more or fewer with --verbose and --quiet.

    Calling again only changes the level.
    """
    logger = logging.getLogger(LIBRARY)
    if not any(isinstance(handler, ConsoleHandler) for handler in logger.handlers):
        logger.addHandler(ConsoleHandler())
        logger.propagate = False
    logger.setLevel(max(least, level()) if level() > VERBOSE else VERBOSE)
