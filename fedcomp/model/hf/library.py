"""Hugging Face's transformers, imported only where a run asks for it, and never asked for anything on a network."""

import os
from typing import Any


def transformers() -> Any:
    """The library, offline and silent. ValueError if it is not installed."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when it is imported
    try:
        import transformers as library
    except ImportError as error:
        missing = error.name or "transformers"
        raise ValueError(f"model=hf needs the library {missing}: pip install 'fedcomp[hf]'") from None
    library.logging.set_verbosity_error()
    library.logging.disable_progress_bar()
    return library
