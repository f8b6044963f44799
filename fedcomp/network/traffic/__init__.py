"""What a run sent and computed, round by round: templates, `traffic.npz`, and its writing while rounds go on."""
