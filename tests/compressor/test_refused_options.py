"""Options and combinations that make no sense, beyond what `tests/config/test_comments.py` finds in their comments."""

from functools import partial

import pytest
import torch

from fedcomp.compressor import Compressor
from fedcomp.compressor.estimators.proj_spatial import ProjSpatial
from fedcomp.compressor.estimators.spatial import Spatial
from fedcomp.compressor.estimators.temporal import Temporal
from fedcomp.compressor.feedback import ErrorFeedback, NoFeedback
from fedcomp.compressor.fuse_filter import FuseFilter
from fedcomp.compressor.masked_noise import MaskedNoise
from fedcomp.compressor.mrc.allocation import Adaptive, AdaptiveAverage, Fixed
from fedcomp.compressor.projections.count_sketch import CountSketch
from fedcomp.compressor.projections.projection import Projection
from fedcomp.compressor.projections.rand_proj import RandProj
from fedcomp.compressor.rotations.quic_fl.quic_fl import QuicFL
from fedcomp.compressor.rotations.turboquant_prod import TurboQuantProd
from fedcomp.compressor.sparsifiers.wangni import Wangni
from tests.looped import looped
from tests.parts import FP4, MRC, QSGD, Eden, MRCQuantiser, MRCSign, RandK, RandomMask, Sign, StochasticSign, TopK
from tests.refused import refused

OPTIONS = [
    (QSGD, {"levels": 1 << 24}, r"levels=.* must be a whole number from 1 to 8388608"),
    (Sign, {"scale": "fixed", "value": 0}, "value=0 must be positive"),
    (StochasticSign, {"value": 0}, "value=0 must be a positive number"),
    *((MaskedNoise, {"alpha": alpha}, r"alpha=.* must be a number in \[1e-08, inf\)") for alpha in (0, -0.1, 1e-9)),
    (FuseFilter, {"fingerprint": 5}, "algorithm.fingerprint=5 must be one"),
    (FuseFilter, {"arity": 2}, "arity=2 must be"),
    (ErrorFeedback, {"decay": 0}, r"feedback.decay=0 must be a number in \(0, 1\]"),
    (TopK, {"match_bits": 1.0, "k": 3}, "both set the number of entries"),
    *((QuicFL, {"bits": bits}, r"bits=.* must be one of 1, 2, 3, 4") for bits in (0, 5, 1.5, True, "two")),
    *(
        (TurboQuantProd, {"bits": it}, r"bits=.* must be a whole number from 1 to 8.*takes fractions")
        for it in (2.5, 9)
    ),
    *((CountSketch, {"rows": rows}, "rows=.* must be an odd number.*even number of rows is biased") for rows in (0, 4)),
    (RandProj, {"block": 1000}, "block=1000 must be a power of two"),
    (Temporal, {"memory": "all"}, "estimator.memory=all must be one of client, shared"),
    (Spatial, {"transform": "mid"}, "transform=mid must be one of max, avg, opt, online"),
    (Spatial, {"transform": "avg", "ratio": 2.0}, "ratio=2.0 goes with transform=opt, and only with it"),
    (Spatial, {"transform": "online", "decay": 1.0}, "decay=1.0 must be a number in"),
    (ProjSpatial, {"transform": "mean"}, "estimator.transform=mean must be one of one, avg, max, opt, online"),
    *((one, {"transform": "opt"}, "estimator.ratio=null goes with transform=opt") for one in (Spatial, ProjSpatial)),
    *(
        (one, {"transform": "opt", "ratio": -2.0}, r"ratio=-2.0 must be a number in .*: R2/R1, in \[-1, n - 1\]")
        for one in (Spatial, ProjSpatial)
    ),
    (
        ProjSpatial,
        {"transform": "online", "normaliser": "mean"},
        "normaliser=mean makes no sense with transform=online",
    ),
    (MRC, {"num_candidates": 1 << 17}, "num_candidates=131072 must be a whole number from 1 to 65536"),
    (MRC, {"block": 70_000}, "block=70000 must be"),
    *((codec, {"bits": 12}, "bits=12 must be one of 8, 16, 32") for codec in (MRC, MRCSign)),
    *((MRC, {"clamp": clamp}, r"clamp=.* must be a number in \[0.00048828125, 0.5\)") for clamp in (0.0, 0.5)),
    (MRC, {"packing": "huffman"}, "packing=huffman must be one of fixed, digits"),
    (MRCSign, {"value": 0.0}, "value=0.0 must be a positive number"),
    *(
        (MRCSign, {"K": rule}, "K=.* must be mean_abs, block_max, capacity, or a positive number: K itself")
        for rule in ("max", 0.0, -1, float("inf"), True)
    ),
    (MRCQuantiser, {"levels": 1 << 24}, "levels=.* must be"),
    (Fixed, {"size": 0}, "size=0 must be a whole number"),
    (Adaptive, {"phi": 1.0}, "phi=1.0 must be a number in .1, inf"),
    (Adaptive, {"longest": 0}, "longest=0 must be"),
    (Adaptive, {"vote": "all"}, "vote=all must be one of majority, any"),
    (AdaptiveAverage, {"smallest": 20, "longest": 10}, "smallest=20 must be at most longest=10"),
]


test_wrong_options = refused([(partial(part, **options), line) for part, options, line in OPTIONS])


DIMS = [
    (RandK(k=13), 12, "k=13 is more than the D = 12 entries"),
    (Wangni(k=13), 12, "k=13 is more than the D = 12 entries"),
    (CountSketch(k=9), 8, "k=9 is more than the D = 8"),
    (RandProj(k=9), 8, "k=9 is more than the D = 8"),
    (RandProj(1e-4), 5000, "fraction=0.0001 sends 1 numbers, but 5000 entries in blocks of 1024 need 5, one each"),
    (TopK(match_bits=0.1), 10, "match_bits=0.1 leaves 1 bits for 10 entries"),
    (TurboQuantProd(2, "gaussian"), 4097, r"residual=gaussian needs D\^2 draws.*residual=rotation.*D = 4097"),
    (Projection(num_projections=7, directions="orthonormal"), 6, "vectors of 6 entries have at most 6 orthonormal"),
]


test_vectors_that_a_codec_cannot_send = refused(
    [({"codec": codec, "dim": dim}, line) for codec, dim, line in DIMS],
    lambda codec, dim: Compressor(codec).init(2, torch.zeros(dim)),
)


UNBIASED = (FP4("stochastic"), QuicFL(), TurboQuantProd(), CountSketch(), RandProj())
COMBINED = [
    *(
        (lambda it=it: Compressor.of(it, "error"), f"feedback=error makes no sense for {type(it).__name__}")
        for it in UNBIASED
    ),
    (lambda: Compressor.of(TopK(), "none", "spatial_avg"), "Rand-k-Spatial makes no sense for TopK"),
    (lambda: Compressor.of(TopK(), "none", "temporal"), "Rand-k-Temporal makes no sense for TopK"),
    (lambda: Compressor.of(RandK(), "none", "proj_avg"), "Rand-Proj-Spatial makes no sense for RandK: .* spatial_"),
    (lambda: Compressor.of(RandProj(), "none", "spatial_avg"), "makes no sense for RandProj: .*proj_avg"),
    (lambda: ProjSpatial("opt", 5.0).init(5, torch.zeros(3)), r"ratio=5.0 must be in \[-1, 4\]"),
]


test_parts_that_do_not_go_together = refused(COMBINED)


def test_biased_settings_can_have_a_memory() -> None:
    for codec in (CountSketch(k=3), Eden(1, "norm"), FP4()):
        Compressor.of(codec, "error")


@looped("estimator", [Spatial("avg"), Temporal(), Temporal("shared")])
@looped("codec", [RandK(0.1, scale="none"), RandomMask(0.1, scale="none")])
@looped("feedback", [NoFeedback(), ErrorFeedback()])
def test_unscaled_codecs_are_not_decoded_jointly(codec, estimator, feedback) -> None:
    """They are scaled all the same: with error feedback the mean received is D / k times that sent."""
    with pytest.raises(ValueError, match="take scale=unbiased and feedback=none"):
        Compressor(codec, feedback, estimator)
