"""Rewards: what a response is worth. `base` is the contract, one short file a reward, `function` calls anybody's."""
