"""What a run leaves behind and shows: its record on disk, trackers beside it, progress, pictures."""
