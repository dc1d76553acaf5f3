"""The `gmc` command."""
