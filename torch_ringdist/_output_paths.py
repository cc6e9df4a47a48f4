"""Checks before the work starts that an output file can be written at its end."""

from __future__ import annotations

import tempfile
from pathlib import Path


def check_writable(path: Path, argument: str, in_place: bool = False) -> None:
    """Checks that a file can be written at `path`.

    Args:
        path: the file.
        argument: the option that the error message names.
        in_place: an existing file will be overwritten rather than replaced by a new one.

    Raises:
        ValueError: the file cannot be written.
    """
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
