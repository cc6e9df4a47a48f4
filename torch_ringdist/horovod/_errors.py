"""Exceptions that Horovod scripts expect."""

from __future__ import annotations


class HorovodInternalError(RuntimeError):
    """An operation failed for a reason that involves other ranks.

    A rank is lost or has left, ranks disagree, or the time is over. ``__cause__`` is the error of
    the engine.
    """

    __module__ = "torch_ringdist.horovod"


class HostsUpdatedInterrupt(RuntimeError):
    """Ranks join or leave, so elastic.run must call the training function again."""

    __module__ = "torch_ringdist.horovod"

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("ranks come or leave")
        self.skip_sync = skip_sync


class as_internal:
    """Converts errors of the engine to HorovodInternalError. Errors of the call itself (ValueError,
    TypeError) pass unchanged."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, RuntimeError) and not isinstance(error, (ValueError, TypeError)):
            raise HorovodInternalError(str(error)) from error
