"""Correction rules for stale rollouts: the contract, the registry, and one short file a rule."""
