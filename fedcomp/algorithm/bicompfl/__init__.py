"""BiCompFL: global and private randomness, and for signs and quantisers instead of masks."""
