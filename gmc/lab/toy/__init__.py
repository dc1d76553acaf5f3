"""Model B: delayed training of a small policy whose expected reward is exact, many runs at once. `gmc lab toy`."""
