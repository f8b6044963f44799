"""The fixture `make_run`."""

from tests.records.synthetic_runs import make_run

__all__ = ["make_run"]
