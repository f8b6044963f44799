"""Provenance of a run: fingerprints of its data and of the user's own code, versions, machine."""
