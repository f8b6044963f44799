"""fedcomp's plugins for Hydra: a launcher and a sweeper, which call `fedcomp.launcher` and `fedcomp.sweeper`.

Hydra finds plugins only in the package `hydra_plugins` and imports them at every start, so their imports must be fast.
"""
