"""The codecs outside of a simulation: tensors to bytes and back, and hooks for torch's DistributedDataParallel.

    import fedcomp.codecs as fc

    sender = fc.codec("topk", fraction=0.01, feedback="error", sender=3)
    message = sender.encode(gradient)                      # bytes, and how many bits of them count
    received = fc.codec("topk", fraction=0.01).decode(message.data, gradient.shape, step=0, sender=3)

Names and options are those of the group `compressor` (`fedcomp --help compressor`).
"""

from fedcomp.codecs.tensor_codec import Message, TensorCodec, codec, compressor

__all__ = ["Message", "TensorCodec", "codec", "compressor"]
