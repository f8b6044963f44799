"""Methods that reach the exact optimum under compression, on data that differ: LoCoDL, TAMUNA, DASHA, MARINA."""
