"""`python -m gmc` is the `gmc` command."""

from gmc.cli.app import main

main()
