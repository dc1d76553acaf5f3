"""The laboratory: exact models of a rule, and sweeps and reports over training runs."""
