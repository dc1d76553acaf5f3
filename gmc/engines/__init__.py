"""Rollout engines: what turns prompts into sampled responses."""
