"""Training: the loop, one update, the session that holds its state, and what it reports."""
