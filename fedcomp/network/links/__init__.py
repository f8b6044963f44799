"""Kinds of networks: what each client's link can carry, and what an algorithm's work costs it."""
