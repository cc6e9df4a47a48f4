"""Makes the name "horovod" refer to torch_ringdist.horovod."""

from __future__ import annotations

import importlib.util
from pathlib import Path

NAMES = str(Path(__file__).parents[1] / "horovod" / "_names")


def folder_of_names() -> str | None:
    """Returns a folder to add to the path of scripts that import horovod.torch; None if Horovod is
    installed."""
    found = importlib.util.find_spec("horovod")
    # A plain folder of that name, perhaps next to a script, has no origin.
    if found is not None and found.origin and not found.origin.startswith(NAMES):
        return None
    return NAMES
