"""Handles: the numbers by which Horovod names operations under way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from torch_ringdist.horovod._errors import as_internal

if TYPE_CHECKING:
    from torch_ringdist._C import NamedWork

Finish = Callable[[list[Sequence[Tensor]]], Any]

_numbers = itertools.count()
_open: dict[int, tuple[Sequence[NamedWork], Finish]] = {}


def new_handle(works: Sequence[NamedWork], finish: Finish) -> int:
    """Of those; `finish` makes what synchronize() returns of what they return."""
    number = next(_numbers)
    _open[number] = works, finish
    return number


def forget(handles: Iterable[int]) -> None:
    """Nobody will ask for them."""
    for handle in handles:
        _open.pop(handle, None)


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
    works, _ = _open[handle]
    return all(work.poll() for work in works)


def synchronize(handle: int) -> Any:
    """Wait for the operation; its result. None for a handle that was synchronized before.

    Raises:
        HorovodInternalError: it has failed, and why.
    """
    if handle not in _open:
        return None
    works, finish = _open[handle]
    results = []
    try:
        with as_internal():
            for work in works:
                results.append(work.wait())
    except KeyboardInterrupt:
        raise  # it goes on
    except BaseException:
        _open.pop(handle, None)
        for work in works:
            work.poll()  # those that have ended free their names
        raise
    _open.pop(handle, None)
    return finish(results)
