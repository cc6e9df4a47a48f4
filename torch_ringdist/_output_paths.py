"""Checks before the work starts that an output file can be written, and writes it at the end."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO


def check_writable(path: Path, argument: str) -> None:
    """Checks that a file can be written at `path`.

    Args:
        path: the file.
        argument: the option that the error message names.

    Raises:
        ValueError: the file cannot be written.
    """
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is no regular file")
        with tempfile.NamedTemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"{argument}: {str(path)!r} cannot be written: {reason}") from None


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[str]]:
    """Yields a new text file in the same folder, which replaces `path` at the end of the block.

    The new file has the same suffix, and the mode of a file that it replaces. After an exception it
    is removed, and `path` is unchanged. A link stays, and the file to which it leads is replaced.

    Raises:
        OSError: the file cannot be written.
    """
    path = path.resolve()
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644  # others may read it
    with tempfile.NamedTemporaryFile(
        "w",
        dir=path.parent,
        prefix=f".{path.name}.",
        suffix=path.suffix,
        encoding="utf-8",
        delete=False,
    ) as out:
        try:
            yield out
            out.flush()
            os.fchmod(out.fileno(), mode)
            os.replace(out.name, path)
        except BaseException:
            os.unlink(out.name)
            raise
