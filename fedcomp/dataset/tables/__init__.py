"""Rows of numbers: one file a data set, and what they share."""
