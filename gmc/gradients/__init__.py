"""From groups and a rule to the model's gradient: assembling the batch, the rule's stages, normalizers."""
