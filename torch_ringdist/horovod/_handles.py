"""Handles, the numbers that stand for operations in flight."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from torch import Tensor

from torch_ringdist.horovod._errors import as_internal

Finish = Callable[[Sequence[Tensor]], Any]


class InFlight(Protocol):
    """An operation that a handle stands for, such as a NamedWork of the native module."""

    def poll(self) -> bool:
        """Returns True if wait() would not block."""

    def wait(self) -> Sequence[Tensor]:
        """Blocks until the end, and returns the outputs."""

    def release_name(self) -> None:
        """Lets another operation take its name."""


_numbers = itertools.count()
_open: dict[int, tuple[InFlight, Finish]] = {}


def new_handle(work: InFlight, finish: Finish) -> int:
    """Returns a new handle. `finish` converts the outputs of `work` to the result of
    synchronize()."""
    number = next(_numbers)
    _open[number] = work, finish
    return number


def forget(handles: Iterable[int]) -> None:
    """Drops handles that will not be synchronized."""
    for handle in handles:
        _open.pop(handle, None)


def release_name(handle: int) -> None:
    """Frees the name of the operation when it ends, even without synchronize()."""
    _open[handle][0].release_name()


def synchronize_all(handles: Sequence[int]) -> list[Any]:
    """Returns the results of synchronize() for each handle. After all have ended, raises the first
    error."""
    results, first = [], None
    for handle in handles:
        try:
            results.append(synchronize(handle))
        except Exception as error:
            first = first or error
    if first is not None:
        raise first
    return results


def poll(handle: int) -> bool:
    """Returns True if the operation has ended. Then synchronize() returns at once, and its name is
    free.

    Raises:
        ValueError: the handle does not exist or was synchronized.
    """
    if handle not in _open:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    work, _ = _open[handle]
    return work.poll()


def synchronize(handle: int) -> Any:
    """Waits for the operation and returns its result; None if the handle was synchronized before.

    Raises:
        HorovodInternalError: the operation has failed, with the reason.
    """
    if handle not in _open:
        return None
    work, finish = _open[handle]
    try:
        with as_internal():
            results = work.wait()
    except KeyboardInterrupt:
        raise  # the operation continues
    except BaseException:
        _open.pop(handle, None)
        raise
    _open.pop(handle, None)
    return finish(results)
