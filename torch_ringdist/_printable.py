"""Makes texts of other processes safe for a terminal."""

from __future__ import annotations

_LONGEST = 4096  # characters of a text that printable() keeps


def printable(text: str) -> str:
    """Returns at most 4096 characters of the text, without those that control a terminal.

    Lines after the first are indented, so that none looks like a message of its own.
    """
    rest = "..." if len(text) > _LONGEST else ""
    return escaped(text[:_LONGEST]).replace("\n", "\n    ") + rest


def escaped(text: str) -> str:
    """Returns the text with escapes such as \\x1b for characters that cannot be printed, except
    ends of lines."""
    return "".join(
        one if one.isprintable() or one == "\n" else one.encode("unicode_escape").decode()
        for one in text
    )
