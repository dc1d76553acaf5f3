"""Tiny random models, one an architecture, through everything that gmc does with a model."""
