"""What an operation raises for an argument that it does not take."""

from __future__ import annotations


class ArgumentError(ValueError, RuntimeError):
    """An argument, option or variable that is not accepted.

    A ValueError, as nccl's; also a RuntimeError, as gloo's, so that programs for either catch it.
    """

    __module__ = "torch_ringdist"


class NotSupportedError(TypeError, RuntimeError):
    """A dtype, device or combination that is not served; a RuntimeError as well, as gloo's."""

    __module__ = "torch_ringdist"
