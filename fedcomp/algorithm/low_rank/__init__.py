"""Methods that train updates of low rank, or of few numbers: FedMUD."""
