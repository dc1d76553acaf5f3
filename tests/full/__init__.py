"""Checks that the suite has no time for: `python -m tests.full NAME`. Each is a module here with a `main()`."""
