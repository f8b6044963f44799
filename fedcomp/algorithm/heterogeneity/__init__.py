"""Methods against client drift, on data that differ between clients: FedProx, SCAFFOLD, SCALLION, FedDyn."""
