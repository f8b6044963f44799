"""What an error says, in one line."""


def first_line(error: BaseException) -> str:
    """The first line of the error's message, or the name of its class if it has no message."""
    return str(error).strip().split("\n")[0] or type(error).__name__
