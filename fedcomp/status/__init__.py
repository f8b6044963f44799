"""`fedcomp-status` shows how far runs are, `fedcomp-diff` compares two, and `fedcomp-clean` removes some."""
