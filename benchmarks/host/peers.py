"""The timed peers: a name, and a call of an operation."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist

from benchmarks.host.operations import Operation

Call = Callable[[Operation], None]

LIMIT = timedelta(seconds=120)
SHARED = "ringdist-shared"  # ringdist with tensors in shared memory
NAMES = ("ringdist", SHARED, "gloo", "openmpi", "fake", "bound")
# These move nothing, so their results are not checked.
MOVE_NOTHING = ("fake", "bound")


def _of_group(backend: str) -> Call:
    group = dist.new_group(backend=backend, timeout=LIMIT)
    return lambda operation: operation.torch(group)


def _openmpi() -> Call:
    from mpi4py import MPI

    communicator = MPI.COMM_WORLD
    return lambda operation: operation.mpi(communicator, MPI)


def _fake() -> Call:
    import torch.testing._internal.distributed.fake_pg  # noqa: F401  registers it

    return _of_group("fake")


def make(names: list[str]) -> dict[str, Call]:
    """Returns calls by name. All ranks make the same call, because groups are created in this
    order."""
    calls: dict[str, Call] = {}
    for name in names:
        if name == "openmpi":
            calls[name] = _openmpi()
        elif name == "fake":
            calls[name] = _fake()
        elif name == "bound":
            calls[name] = lambda operation: operation.bound()
        else:
            calls[name] = _of_group("ringdist" if name == SHARED else name)
    return calls
