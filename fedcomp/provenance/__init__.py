"""What a run is made of: fingerprints of its data and of the user's own code, versions, machine."""
