"""Everything on disk: the run directory, shards, logs, checkpoints, policies, atomic files. No other package spells a path."""
