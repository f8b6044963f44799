"""What an error says, in one line."""


def first_line(error: BaseException) -> str:
    """The first line of the error's message, or the name of its class if it has no message."""
    return str(error).strip().split("\n")[0] or type(error).__name__


def first_sentence(error: BaseException) -> str:
    """The first sentence of that line; torch's errors of `vmap` go on with what to tell its developers."""
    return first_line(error).split(". ")[0].rstrip(".")
