"""What `gmc rollout` does: filling a run with rollouts of its initial policy, or following a live run."""
