"""From settings to what a run really uses: the parts, built once from resolved settings."""
