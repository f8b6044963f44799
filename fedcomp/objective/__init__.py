"""What a search over settings looks for: one number of a run's record."""
