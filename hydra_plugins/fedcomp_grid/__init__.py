"""How grids of fedcomp meet Hydra: one launcher and one sweeper, thin over `fedcomp.launcher` and `fedcomp.sweeper`.

Hydra finds plugins only in the package `hydra_plugins`, and imports all of them at every start: keep this light.
"""
