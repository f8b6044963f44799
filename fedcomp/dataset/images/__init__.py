"""Pictures: one file a data set, and what they share."""
