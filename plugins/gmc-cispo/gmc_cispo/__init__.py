"""CISPO for gmc: token ratios clipped at an absolute cap, detached."""
