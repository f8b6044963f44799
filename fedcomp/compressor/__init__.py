"""Compressors: a codec, a sender's memory and a receiver's estimator, composed. One file a method."""

from fedcomp.compressor.compressor import Compressor, Memory
from fedcomp.compressor.contract import Codec, Estimator, Feedback

__all__ = ["Codec", "Compressor", "Estimator", "Feedback", "Memory"]
