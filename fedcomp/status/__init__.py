"""How far the runs in a folder are, what differs between two, which can go: `fedcomp-status`, `-diff`, `-clean`."""
