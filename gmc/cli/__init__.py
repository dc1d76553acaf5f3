"""The `gmc` command: one short file a subcommand, heavy imports inside the command bodies."""

from gmc.cli.app import app, main

__all__ = ["app", "main"]
