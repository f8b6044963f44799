"""The engine: executes rounds, evaluates, checkpoints. It names no method."""
