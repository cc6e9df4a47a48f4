"""Closes coalescing regions that end with an exception.

PyTorch's _coalescing_manager has no `finally`. Operations that were collected before the exception
would stay in torch.distributed and in the backend. They would be sent with the next operation of
the thread.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any

_NAME = "_coalescing_manager"


def guard_regions() -> None:
    """Replaces PyTorch's _coalescing_manager by a guarded one in all modules that imported it by
    name.

    It changes only regions of groups with a ringdist backend. A second call does nothing, and
    neither does a call with a torch that has no such manager.
    """
    from torch.distributed import distributed_c10d

    original = getattr(distributed_c10d, _NAME, None)
    if original is None or hasattr(original, "_guarded_by_ringdist"):
        return
    guarded = _guarded(original)
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        if names.get(_NAME) is original:
            names[_NAME] = guarded


# Returns a manager that runs `original` and discards the region after an exception.
def _guarded(original: Any) -> Any:
    @functools.wraps(original)
    @contextlib.contextmanager
    def manager(group: Any = None, *args: Any, **named: Any) -> Iterator[Any]:
        outer = _collected(group)
        try:
            with original(group, *args, **named) as works:
                yield works
        except BaseException:
            # An enclosing region stays open; PyTorch refuses most nested regions.
            if outer is None:
                _abandon(group)
            raise

    manager._guarded_by_ringdist = True  # type: ignore[attr-defined]
    return manager


def _abandon(group: Any) -> None:
    """Discards the operations of the region that this thread has open."""
    from torch.distributed import distributed_c10d

    backends = _backends(group)
    for backend in backends:
        backend._start_coalescing()  # discards the open region
        backend._end_coalescing()
    if backends:
        distributed_c10d._world.pg_coalesce_state.pop(_group(group), None)


def _group(group: Any) -> Any:
    from torch.distributed import distributed_c10d

    return group or distributed_c10d._get_default_group()


def _collected(group: Any) -> list[Any] | None:
    """Returns the operations collected by the group's open region; None if no region is open."""
    from torch.distributed import distributed_c10d

    state = getattr(distributed_c10d._world, "pg_coalesce_state", {})
    return state.get(group or distributed_c10d.group.WORLD)


def _backends(group: Any) -> list[Any]:
    """Returns the ringdist backends of the group, without duplicates."""
    found = []
    for device in getattr(_group(group), "_device_types", []):
        with contextlib.suppress(RuntimeError):
            backend = _group(group)._get_backend(device)
            backend = getattr(backend, "wrapped_pg", backend)
            if backend.name() == "ringdist" and backend not in found:
                found.append(backend)
    return found
