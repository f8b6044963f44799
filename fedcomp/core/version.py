"""The version of fedcomp: set here, read by the build."""

__version__ = "0.1.0"
