"""Which settings are tried: all combinations, or what a search proposes."""
