"""What a Horovod script expects to be raised."""

from __future__ import annotations


class HorovodInternalError(RuntimeError):
    """An operation failed for a reason that others had to be asked for: a rank is lost or has left,
    ranks disagree, the time is over. The engine's error is the cause (``__cause__``)."""

    __module__ = "torch_ringdist.horovod"


class HostsUpdatedInterrupt(RuntimeError):
    """Ranks come or leave: the training function of elastic.run is to be entered anew."""

    __module__ = "torch_ringdist.horovod"

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("ranks come or leave")
        self.skip_sync = skip_sync


class as_internal:  # noqa: N801: a context manager
    """Errors of the engine as HorovodInternalError; those of the call itself (ValueError,
    TypeError) as they are."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, RuntimeError) and not isinstance(error, (ValueError, TypeError)):
            raise HorovodInternalError(str(error)) from error
