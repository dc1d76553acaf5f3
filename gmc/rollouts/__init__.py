"""Rollouts: made from a policy, and handed to training by a source that says which group is used when."""
