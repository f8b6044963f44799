"""Methods whose model is not a network: k-means, power iteration, the estimate of a mean."""
