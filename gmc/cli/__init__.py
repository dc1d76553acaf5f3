"""The `gmc` command: one short file a subcommand, heavy imports inside the command bodies."""
