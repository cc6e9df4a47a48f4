"""One size of an operation that ``ringdist bench`` measures: tensors, call and exact result."""

from __future__ import annotations

from argparse import Namespace
from functools import partial, reduce
from typing import Any

import torch
import torch.distributed as dist

import torch_ringdist

# Input values repeat after so many elements. It is a prime, so swapped parts are detected.
_PERIOD = 1021
# Integers up to this limit are exact in a dtype. Half of that of float32 is enough for all others.
_EXACT = {"bfloat16": 1 << 8, "float16": 1 << 11, "int8": 127, "uint8": 255}
_FACTORS_OF_TWO = 6  # ranks that contribute a 2 to a product; int8 has 127
DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
REDUCE_OPS: dict[str, tuple[Any, Any]] = {
    "sum": (dist.ReduceOp.SUM, torch.add),
    "prod": (dist.ReduceOp.PRODUCT, torch.mul),
    "min": (dist.ReduceOp.MIN, torch.minimum),
    "max": (dist.ReduceOp.MAX, torch.maximum),
}
# Factor and traits. The factor of nccl-tests is that of (n - 1) / n in bus bandwidth / algorithm
# bandwidth. It is 0 if both are equal. An operation with parts-in or parts-out has a part for each
# rank in its input or output. With in-place, one tensor has the input, then the output. With
# to-root, only the root has a result.
OPERATIONS = {
    "all_reduce": (2, "reduces in-place codec"),
    "broadcast": (0, "rooted in-place"),
    "reduce": (0, "rooted reduces in-place to-root"),
    "all_gather": (1, "parts-out codec"),
    "reduce_scatter": (1, "reduces parts-in codec"),
    "all_to_all": (1, "parts-in parts-out"),
    "gather": (1, "rooted parts-out to-root"),
    "scatter": (1, "rooted parts-in"),
    "send_recv": (0, ""),
    "barrier": (0, ""),
}
_CALLS: dict[str, Any] = {
    "all_reduce": lambda c: c.all_reduce(c.received, c.op),
    "broadcast": lambda c: dist.broadcast(c.received, c.root),
    "reduce": lambda c: dist.reduce(c.received, c.root, c.op),
    "all_gather": lambda c: c.all_gather(c.received, c.given),
    "reduce_scatter": lambda c: c.reduce_scatter(c.received, c.given, c.op),
    "all_to_all": lambda c: dist.all_to_all_single(c.received, c.given),
    "gather": lambda c: dist.gather(c.given, c.parts_at_root(c.received), c.root),
    "scatter": lambda c: dist.scatter(c.received, c.parts_at_root(c.given), c.root),
    "send_recv": lambda c: c.send_to_next(),
    "barrier": lambda c: dist.barrier(),
}


class _Newest:  # torch 2.13 warns about the older names
    all_reduce = dist.all_reduce
    all_gather_into_tensor = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
    reduce_scatter_tensor = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


def whole_bytes(args: Namespace, count: int, ranks: int) -> int:
    """Returns the size of Case(args, count, ...): the larger one of a rank's input and output."""
    parts = ranks if "parts" in OPERATIONS[args.operation][1] else 1
    return count * parts * getattr(torch, args.dtype).itemsize


class Case:
    """The tensors of one rank. `count` is the number of elements, or of those of a part."""

    def __init__(self, args: Namespace, count: int, rank: int, ranks: int) -> None:
        self.args, self.count, self.rank, self.ranks = args, count, rank, ranks
        self.factor, self.traits = OPERATIONS[args.operation]
        self.op, self._combine = REDUCE_OPS[args.reduce_op or "sum"]
        self.root = args.root or 0
        coded: Any = {"codec": args.codec} if args.codec else {}
        api: Any = torch_ringdist if args.codec else _Newest
        self.all_reduce = partial(api.all_reduce, **coded)
        self.all_gather = partial(api.all_gather_into_tensor, **coded)
        self.reduce_scatter = partial(api.reduce_scatter_tensor, **coded)
        self.dtype: torch.dtype = getattr(torch, args.dtype)
        self.bytes = whole_bytes(args, count, ranks)
        size_in = count * ranks if "parts-in" in self.traits else count
        size_out = count * ranks if "parts-out" in self.traits else count
        self.given = _repeated(self._values(rank).to(self.dtype), 0, size_in).to(args.device)
        self.received = torch.zeros(size_out, dtype=self.dtype, device=args.device)

    def refill(self) -> None:
        """Writes the input of an operation in place."""
        if "in-place" in self.traits:
            self.received.copy_(self.given)

    def run(self) -> None:
        """Calls the operation, and waits for its end on the CPU and the GPU."""
        _CALLS[self.args.operation](self)
        if self.args.device == "cuda":
            torch.cuda.synchronize()

    def parts_at_root(self, tensor: torch.Tensor) -> list[torch.Tensor] | None:
        return list(tensor.chunk(self.ranks)) if self.rank == self.root else None

    def send_to_next(self) -> None:
        after, before = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        send, receive = (dist.isend, self.given, after), (dist.irecv, self.received, before)
        for work in dist.batch_isend_irecv([dist.P2POp(*send), dist.P2POp(*receive)]):
            work.wait()

    def compare(self) -> tuple[int, float, float]:
        """Returns the number of elements that differ from the exact result, the squared error, and
        the square of the exact result. Without a codec the last two are 0."""
        wrong, error, square = 0, 0.0, 0.0
        begin = self.rank * self.count if "parts-in" in self.traits else 0
        for place, period in enumerate(self._expected()):
            found = self.received[place * self.count : (place + 1) * self.count].cpu()
            if self.args.codec:
                exact = _repeated(period, begin, self.count)
                error += float((found.double() - exact).square().sum())
                square += float(exact.square().sum())
            else:
                exact = _repeated(period.to(self.dtype), begin, self.count)
                wrong += int((found != exact).sum())
        return wrong, error, square

    def _expected(self) -> list[torch.Tensor]:
        """Returns a period of each part of the output."""
        if "to-root" in self.traits and self.rank != self.root:
            return []
        if "reduces" in self.traits:
            return [reduce(self._combine, map(self._values, range(self.ranks)))]
        source = self.root if "rooted" in self.traits else (self.rank - 1) % self.ranks
        sources = range(self.ranks) if "parts-out" in self.traits else [source]
        return [self._values(one) for one in sources]

    def _values(self, rank: int) -> torch.Tensor:
        """Returns a period of a rank's input. Reductions of it are exact in the dtype, except with
        a codec, for which it is normally distributed."""
        draw = torch.Generator(device="cpu").manual_seed(rank)
        values = torch.empty(_PERIOD, dtype=torch.float64, device="cpu")
        limit = _EXACT.get(self.args.dtype, 1 << 23)
        if self.args.codec:
            values.normal_(generator=draw)
        elif self.args.reduce_op == "prod":
            values.random_(1, 2 + (rank < _FACTORS_OF_TWO), generator=draw)
        else:
            most = max(1, min(16, limit // self.ranks)) if rank < limit else 0
            values.random_(0, most + 1, generator=draw)
        return values.to(self.dtype).double()


# Returns `count` elements, from index `begin`, of the endless repetition of a period.
def _repeated(period: torch.Tensor, begin: int, count: int) -> torch.Tensor:
    return period.roll(-(begin % _PERIOD)).repeat(-(-count // _PERIOD))[:count]
