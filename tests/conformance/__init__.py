"""Suites that every codec and every algorithm must pass; a new method joins with one line in its suite's list."""
