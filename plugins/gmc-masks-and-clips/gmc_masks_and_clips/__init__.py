"""Masks and clips for gmc: SAT, OPSM, GMPO and CARM."""
