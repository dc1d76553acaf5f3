"""Trust-region rules for gmc: M2PO, BAPO and DPPO."""
