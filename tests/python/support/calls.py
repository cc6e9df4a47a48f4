"""Every operation as one call with parameters that a test can vary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import AllgatherOptions, ReduceScatterOptions


@dataclass(frozen=True)
class Call:
    """The call of one rank of `group`. Ranks are those in the group; tensors contain ones."""

    group: Any
    count: int = 100  # elements of a tensor, or of each part
    dtype: torch.dtype = torch.float32
    root: int = 0  # also the sender
    op: Any = dist.ReduceOp.SUM

    def tensor(self, parts: int = 1) -> torch.Tensor:
        return torch.ones(self.count * parts, dtype=self.dtype)

    def parts(self) -> list[torch.Tensor]:
        return [self.tensor() for _ in range(self.group.size())]

    def at_root(self) -> list[torch.Tensor] | None:
        return self.parts() if self.group.rank() == self.root else None


def _all_reduce_sparse(c: Call) -> Any:
    return dist.all_reduce(c.tensor().to_sparse(), c.op, group=c.group, async_op=True)


def _all_gather_coalesced(c: Call) -> Any:
    ours = c.group._get_backend(torch.device("cpu"))
    return ours.allgather_coalesced([[part] for part in c.parts()], [c.tensor()])


def _all_gather_into_tensor_coalesced(c: Call) -> Any:
    whole = c.tensor(c.group.size())
    return c.group.allgather_into_tensor_coalesced([whole], [c.tensor()], AllgatherOptions())


def _reduce_scatter_tensor_coalesced(c: Call) -> Any:
    options = ReduceScatterOptions()
    options.reduceOp = c.op
    whole = c.tensor(c.group.size())
    return c.group.reduce_scatter_tensor_coalesced([c.tensor()], [whole], options)


def _all_to_all_single(c: Call) -> Any:
    given = c.tensor(c.group.size())
    return dist.all_to_all_single(torch.empty_like(given), given, group=c.group, async_op=True)


def _send_recv(c: Call) -> Any:
    """Sends around the ring. Each rank waits for its receive and its send."""
    rank, size = c.group.rank(), c.group.size()
    sent = dist.isend(c.tensor(), group=c.group, group_dst=(rank + 1) % size)
    received = dist.irecv(c.tensor(), group=c.group, group_src=(rank - 1) % size)
    return _Both(sent, received)


class _Both:
    def __init__(self, *works: Any) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()


# Each starts an operation and returns its Work. PyTorch's monitored_barrier is missing: it has no
# Work, and only the backend itself offers it.
OPERATIONS: dict[str, Callable[[Call], Any]] = {
    "all_reduce": lambda c: dist.all_reduce(c.tensor(), c.op, group=c.group, async_op=True),
    "all_reduce_coalesced": lambda c: dist.all_reduce_coalesced(
        [c.tensor()], c.op, group=c.group, async_op=True
    ),
    "sparse_all_reduce": _all_reduce_sparse,
    "reduce": lambda c: dist.reduce(
        c.tensor(), op=c.op, group=c.group, group_dst=c.root, async_op=True
    ),
    "broadcast": lambda c: dist.broadcast(
        c.tensor(), group=c.group, group_src=c.root, async_op=True
    ),
    "all_gather": lambda c: dist.all_gather(c.parts(), c.tensor(), group=c.group, async_op=True),
    "all_gather_coalesced": _all_gather_coalesced,
    "all_gather_into_tensor": lambda c: dist.all_gather_into_tensor(
        c.tensor(c.group.size()), c.tensor(), group=c.group, async_op=True
    ),
    "all_gather_into_tensor_coalesced": _all_gather_into_tensor_coalesced,
    "gather": lambda c: dist.gather(
        c.tensor(), c.at_root(), group=c.group, group_dst=c.root, async_op=True
    ),
    "scatter": lambda c: dist.scatter(
        c.tensor(), c.at_root(), group=c.group, group_src=c.root, async_op=True
    ),
    "reduce_scatter": lambda c: dist.reduce_scatter(
        c.tensor(), c.parts(), c.op, group=c.group, async_op=True
    ),
    "reduce_scatter_tensor": lambda c: dist.reduce_scatter_tensor(
        c.tensor(), c.tensor(c.group.size()), c.op, group=c.group, async_op=True
    ),
    "reduce_scatter_tensor_coalesced": _reduce_scatter_tensor_coalesced,
    "all_to_all": lambda c: dist.all_to_all(c.parts(), c.parts(), group=c.group, async_op=True),
    "all_to_all_single": _all_to_all_single,
    "barrier": lambda c: dist.barrier(group=c.group, async_op=True),
    "send_recv": _send_recv,
}
