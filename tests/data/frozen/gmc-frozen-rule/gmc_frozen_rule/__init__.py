"""The correction rule frozen-rule for gmc."""
