"""What an operation raises for an argument that it does not take."""

from __future__ import annotations

import sys
import threading


class ArgumentError(ValueError, RuntimeError):
    """An argument, option or variable that is not accepted.

    A ValueError, as nccl's; also a RuntimeError, as gloo's, so that programs for either catch it.
    """

    __module__ = "torch_ringdist"


class NotSupportedError(TypeError, RuntimeError):
    """A dtype, device or combination that is not served; a RuntimeError as well, as gloo's."""

    __module__ = "torch_ringdist"


def handled_exception() -> str:
    """Name of the exception that this thread handles, or, at exit, that has ended the script."""
    exits = not threading.main_thread().is_alive()
    error = sys.exc_info()[1] or (getattr(sys, "last_value", None) if exits else None)
    return "" if error is None else type(error).__name__
