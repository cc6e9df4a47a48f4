"""Where the name "horovod" is torch_ringdist.horovod's."""

from __future__ import annotations

import importlib.util
from pathlib import Path

NAMES = str(Path(__file__).parents[1] / "horovod" / "_names")


def folder_of_names() -> str | None:
    """To be on the path of a script that imports horovod.torch; None where Horovod is installed."""
    found = importlib.util.find_spec("horovod")
    # A folder of that name, say where a script is, has no origin.
    if found is not None and found.origin and not found.origin.startswith(NAMES):
        return None
    return NAMES
