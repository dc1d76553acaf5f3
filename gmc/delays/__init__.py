"""Delays: which rollout is used at which update, and how old it is by then."""
