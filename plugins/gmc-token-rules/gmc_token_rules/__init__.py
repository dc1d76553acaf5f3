"""Ratio-weighting rules for gmc: SAPO, IcePop, MIS, DIS, TIS, AIPO, GSPO and ESTR."""
