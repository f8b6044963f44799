"""Peeling for binary fuse filters, compiled by numba: it goes key by key. Importing this module takes half a second."""

import numpy as np

from fedcomp.random.numba_jit import compiled


@compiled
def peel(cells: np.ndarray, prints: np.ndarray, out: np.ndarray) -> bool:
    """Fill out [A] int64 so that the XOR of a key's cells is its fingerprint; False if peeling sticks.

    Args:
        cells: [n, arity] int64, distinct places in out. prints: [n] int64 fingerprints.
    """
    num, arity = cells.shape
    degree, mixed = np.zeros(out.size, np.int64), np.zeros(out.size, np.int64)
    for key in range(num):
        for place in range(arity):
            degree[cells[key, place]] += 1
            mixed[cells[key, place]] ^= key
    alone, order, where = np.empty(out.size, np.int64), np.empty(num, np.int64), np.empty(num, np.int64)
    waiting, done = 0, 0
    for cell in range(out.size):
        if degree[cell] == 1:
            alone[waiting] = cell
            waiting += 1
    while waiting:
        waiting -= 1
        cell = alone[waiting]
        if degree[cell] != 1:
            continue
        key = mixed[cell]
        order[done], where[done] = key, cell
        done += 1
        for place in range(arity):
            other = cells[key, place]
            degree[other] -= 1
            mixed[other] ^= key
            if degree[other] == 1:
                alone[waiting] = other
                waiting += 1
    if done < num:
        return False
    out[:] = 0
    for step in range(num - 1, -1, -1):
        key, value = order[step], prints[order[step]]
        for place in range(arity):
            value ^= out[cells[key, place]]
        out[where[step]] = value
    return True
