"""Trackers, which show a run elsewhere (W&B)."""
