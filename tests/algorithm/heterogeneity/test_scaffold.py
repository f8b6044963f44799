"""What SCAFFOLD and SCALLION refuse; how they run is in `test_plain_rounds.py` and `../test_optimum.py`."""

from dataclasses import replace

from fedcomp.algorithm.heterogeneity.scaffold import Scaffold
from fedcomp.algorithm.heterogeneity.scallion import Scallion
from tests.algorithm.heterogeneous import Run, problem
from tests.parts import Adam, Compressor, Dense, Eden, ErrorFeedback, MRCSign, RandK, ServerSgd, Sgd, Spatial, TopK
from tests.refused import refused

DENSE, RAND4, TOP4 = Compressor(Dense()), Compressor(RandK(k=4)), Compressor(TopK(k=4, positions="index"))
TOP10_DOWN = Compressor(TopK(k=10, positions="index"), ErrorFeedback())
STEP, CLIENTS = ServerSgd(), problem(0)
TEN = Sgd(lr=0.1, steps=10)


test_wrong_input = refused(
    [
        (lambda: Scaffold(replace(TEN, momentum=0.9), STEP, DENSE), "plain steps, but client.momentum=0.9 was given"),
        (lambda: Scaffold(Adam(lr=0.1), STEP, DENSE), "needs plain steps, but client=adam was given"),
        (lambda: Scallion(replace(TEN, clip_norm=1.0), STEP, DENSE, DENSE), "but client.clip_norm=1.0 was given"),
        (lambda: Scaffold(replace(TEN, proximal=0.1), STEP, DENSE), "client.proximal=0.1 does not go with SCAFFOLD"),
        (lambda: Scaffold(TEN, STEP, DENSE, alpha=0), r"algorithm.alpha=0 must be a number in \(0, 1\]"),
        (lambda: Scaffold(TEN, STEP, replace(TOP4, feedback=ErrorFeedback())), "compressor.feedback must be none"),
        (lambda: Scaffold(TEN, STEP, replace(RAND4, estimator=Spatial("avg"))), "compressor.estimator must be"),
        (lambda: Scallion(TEN, STEP, Compressor(MRCSign(block=8)), DENSE), "unbiased or only shrinks, and MRCSign as"),
        (lambda: Scallion(TEN, STEP, RAND4, TOP10_DOWN, sends="model"), "algorithm.sends=model needs a dense downlink"),
        (lambda: Scallion(TEN, STEP, RAND4, TOP4), "downlink.feedback=none makes the control variates .* differ for"),
        (lambda: Scallion(TEN, STEP, RAND4, RAND4), "downlink.feedback=none makes the control variates"),
        (lambda: Scallion(TEN, STEP, RAND4, Compressor(Dense("float16"))), "downlink.feedback=none makes the control"),
        (lambda: Run(Scallion(TEN, STEP, RAND4, DENSE, 0.2), CLIENTS).init(), r"is above 1 / \(1 \+ omega\) = 0.1 of"),
        (lambda: Run(Scaffold(TEN, STEP, RAND4, alpha=0.2), CLIENTS).init(), "take algorithm.alpha=null, or less"),
        (lambda: Run(Scaffold(TEN, STEP, Compressor(Eden())), CLIENTS).init(), "omega of Eden has no closed form:"),
    ]
)


def test_option_one_goes_with_momentum_and_a_given_alpha_with_any_codec() -> None:
    Scaffold(replace(TEN, momentum=0.9), STEP, DENSE, "I")
    Run(Scaffold(TEN, STEP, Compressor(Eden()), alpha=0.4), CLIENTS).init()
