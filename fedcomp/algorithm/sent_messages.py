"""The messages of a round that go through compressors: their names, which their draws follow from, and memories."""

from dataclasses import dataclass, field

from torch import Tensor

from fedcomp.compressor import Memory


@dataclass
class SentMessages:
    """What a round has sent so far.

    Attributes:
        memories: (message, memory before it, memory after it), where somebody looks; None: nobody does.
        names: of the messages.
    """

    memories: list[tuple[str, Memory, Memory]] | None = None
    names: set[str] = field(default_factory=set)

    def noted(self, name: str, before: Memory, found: tuple[Tensor, Memory]) -> tuple[Tensor, Memory]:
        """`found`, what a compressor with the memory `before` made of the message: (a tensor, its new memory).

        Raises ValueError: an earlier message of the round has this name, and so the same draws.
        """
        if name in self.names:
            raise ValueError(
                f"two messages of a round are called '{name}', so that their codecs draw the same numbers: give each "
                "a name of its own"
            )
        self.names.add(name)
        if self.memories is not None:
            self.memories.append((name, before, found[1]))
        return found
