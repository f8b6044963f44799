"""`python -m fedcomp` and the console script `fedcomp`."""

from fedcomp.entry import fedcomp

if __name__ == "__main__":
    fedcomp()
