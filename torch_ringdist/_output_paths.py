"""Whether a file that is to be written at the end can be: asked before the work."""

from __future__ import annotations

import tempfile
from pathlib import Path


def check_writable(path: Path, argument: str, in_place: bool = False) -> None:
    """Raises ValueError, which names the argument, if nothing could be written there. `in_place`:
    a file that is there will not be replaced by another one."""
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is no regular file")
        if in_place and path.exists():
            with path.open("ab"):
                return
        with tempfile.NamedTemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"{argument}: {str(path)!r} cannot be written: {reason}") from None
