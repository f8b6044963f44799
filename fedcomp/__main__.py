"""`python -m fedcomp` and the console script `fedcomp`."""

from fedcomp.cli.entry_points import fedcomp

if __name__ == "__main__":
    fedcomp()
