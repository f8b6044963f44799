"""`fedcomp-replay`: the times of finished runs under other networks, without training again."""
