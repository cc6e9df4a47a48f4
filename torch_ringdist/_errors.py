"""Exceptions that operations raise for arguments that they do not accept, and that of commands."""

from __future__ import annotations

import sys
import threading


class ArgumentError(ValueError, RuntimeError):
    """An argument, option or variable that is not accepted.

    It is a ValueError like that of nccl, and a RuntimeError like that of gloo, so programs written
    for either catch it.
    """

    __module__ = "torch_ringdist"


class NotSupportedError(TypeError, RuntimeError):
    """A dtype, device or combination that is not supported. It is also a RuntimeError like that of
    gloo."""

    __module__ = "torch_ringdist"


class CommandError(Exception):
    """A command could not do its work. The command line prints the message and exits with 1."""


def handled_exception() -> str:
    """Returns the type name of the exception that this thread handles, or "" if there is none. At
    exit it is the exception that ended the script."""
    exits = not threading.main_thread().is_alive()
    error = sys.exc_info()[1] or (getattr(sys, "last_value", None) if exits else None)
    return "" if error is None else type(error).__name__
