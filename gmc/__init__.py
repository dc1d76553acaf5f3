"""gmc: reinforcement learning of language models on stale rollouts, and Group-Mass Capping (arXiv 2610.01896)."""

__version__ = "0.1.0"
