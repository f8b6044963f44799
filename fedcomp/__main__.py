"""`python -m fedcomp` and the console script `fedcomp`."""

from fedcomp.cli import main

if __name__ == "__main__":
    main()
