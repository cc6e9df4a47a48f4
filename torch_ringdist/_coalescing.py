"""Closes coalescing regions that an exception leaves.

PyTorch's _coalescing_manager has no `finally`: what was collected before the exception would stay,
in torch.distributed and in the backend, and go out with the thread's next operation.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any

_NAME = "_coalescing_manager"


def guard_regions() -> None:
    """Put our manager around PyTorch's, wherever that has been imported to by its name.

    It changes regions of groups with a ringdist backend only. A second call does nothing; nor does
    a torch that has no such manager.
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


def _guarded(original: Any) -> Any:
    @functools.wraps(original)
    @contextlib.contextmanager
    def manager(group: Any = None, *args: Any, **named: Any) -> Iterator[Any]:
        outer = _collected(group)
        try:
            with original(group, *args, **named) as works:
                yield works
        except BaseException:
            # A region around this one goes on; PyTorch refuses most of those.
            if outer is None:
                _abandon(group)
            raise

    manager._guarded_by_ringdist = True
    return manager


def _abandon(group: Any) -> None:
    """Forget what was called in the region that this thread has open."""
    from torch.distributed import distributed_c10d

    backends = _backends(group)
    for backend in backends:
        backend._start_coalescing()  # drops the region that is open
        backend._end_coalescing()
    if backends:
        distributed_c10d._world.pg_coalesce_state.pop(_group(group), None)


def _group(group: Any) -> Any:
    from torch.distributed import distributed_c10d

    return group or distributed_c10d._get_default_group()


def _collected(group: Any) -> list[Any] | None:
    """What a region that is open for the group has collected; None if there is none."""
    from torch.distributed import distributed_c10d

    state = getattr(distributed_c10d._world, "pg_coalesce_state", {})
    return state.get(group or distributed_c10d.group.WORLD)


def _backends(group: Any) -> list[Any]:
    """Ours, behind the group."""
    found = []
    for device in getattr(_group(group), "_device_types", []):
        with contextlib.suppress(RuntimeError):
            backend = _group(group)._get_backend(device)
            backend = getattr(backend, "wrapped_pg", backend)
            if backend.name() == "ringdist" and backend not in found:
                found.append(backend)
    return found
