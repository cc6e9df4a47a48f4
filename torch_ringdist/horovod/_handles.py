"""Handles: the numbers by which Horovod names operations under way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from torch_ringdist.horovod._errors import as_internal

if TYPE_CHECKING:
    from torch_ringdist._C import NamedWork

Finish = Callable[[Sequence[Tensor]], Any]

_numbers = itertools.count()
_open: dict[int, tuple[NamedWork, Finish]] = {}


def new_handle(work: NamedWork, finish: Finish) -> int:
    """`finish` makes what synchronize() returns of what the work returns."""
    number = next(_numbers)
    _open[number] = work, finish
    return number


def forget(handles: Iterable[int]) -> None:
    """Nobody will ask for them."""
    for handle in handles:
        _open.pop(handle, None)


def release_name(handle: int) -> None:
    """Its name is free once the operation has ended, also if nobody synchronizes it."""
    _open[handle][0].release_name()


def synchronize_all(handles: Sequence[int]) -> list[Any]:
    """As synchronize() of each. Raises: the first error, when all have ended."""
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
    """Whether the operation has ended; then synchronize() returns at once, and its name may be used
    again.

    Raises:
        ValueError: there is no such handle, or it was synchronized.
    """
    if handle not in _open:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    work, _ = _open[handle]
    return work.poll()


def synchronize(handle: int) -> Any:
    """Wait for the operation; its result. None for a handle that was synchronized before.

    Raises:
        HorovodInternalError: it has failed, and why.
    """
    if handle not in _open:
        return None
    work, finish = _open[handle]
    try:
        with as_internal():
            results = work.wait()
    except KeyboardInterrupt:
        raise  # it goes on
    except BaseException:
        _open.pop(handle, None)
        raise
    _open.pop(handle, None)
    return finish(results)
