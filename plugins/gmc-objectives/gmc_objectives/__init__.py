"""Policy objectives for gmc: DAPO, Dr. GRPO, OPMD, TOPR, VESPO, Kimi and DRO."""
