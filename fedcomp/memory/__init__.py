"""How much memory a run takes, estimated before anything large is allocated."""
