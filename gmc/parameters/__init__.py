"""Who holds the parameters: one owner, whether every process has all of them or each a part."""
