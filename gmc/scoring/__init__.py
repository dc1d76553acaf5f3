"""Log-probs of responses under a model: plan, packing, attention, passes, head, entropies, score norms."""
