"""What each correction rule makes of stored rollouts under a given policy, without training."""
