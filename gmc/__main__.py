"""The `gmc` command, also as `python -m gmc`. Imports nothing heavy before Ctrl-C is in order."""

import os
import signal
import sys

from gmc.lifeline import hold_on, stop_with_launcher


def main() -> None:
    """Run the command line, ending with a process that gave it a lifeline and with torchrun.

    Until it is loaded, Ctrl-C ends the process without a word, as it does any program.
    """
    hold_on()
    stop_with_launcher()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        os.getcwd()
    except OSError as error:  # libraries that are loaded later would end the process in words of their own
        sys.exit(f"error: the working directory cannot be used ({error.strerror}); change to one that exists")
    from gmc.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
