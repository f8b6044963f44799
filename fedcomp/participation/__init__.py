"""Which clients take part in a round, and with what weight."""
