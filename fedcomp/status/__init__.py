"""A grid at a glance, while it runs: `fedcomp-status PATH`."""
