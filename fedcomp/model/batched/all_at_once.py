"""When the clients of any network run all at once, by `vmap`, rather than one after another."""

from __future__ import annotations

from torch import nn

from fedcomp.core.accelerated import Form

ALL_AT_ONCE = Form("clients of a network all at once", "one after another")
NETWORK, MOST = 30.0, 0.3
"""How much more a network's gradients may differ than a product, as rounding goes through all layers; at most."""
SLOW_BY_VMAP = (nn.modules.conv._ConvNd, nn.MultiheadAttention)
"""Modules that run faster one client after another on a CPU. vmap runs convolutions as grouped ones in a slow layout,
and has no rule for fused attention: a step of 10 clients of `model=char_gpt`, batches of 10: 152 ms, a loop 134."""
NO_VMAP = (nn.RNNBase,)
"""Modules for which vmap has no rule but takes a slow loop of its own, without an error. The same step of LEAF's LSTM
(`model=char_lstm`): 2,491 ms under vmap, 412 ms here, 391 ms as ten modules, on one thread of a busy machine."""
