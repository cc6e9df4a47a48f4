"""Gradients that travel compressed: in buckets of a fixed order, as DistributedDataParallel's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod import _world
from torch_ringdist.horovod._codec import Codec, OptimizerCompression
from torch_ringdist.horovod._compression import NoneCompressor
from torch_ringdist.horovod._errors import as_internal
from torch_ringdist.horovod._gradients import Bundle, Gradients, GradientSettings
from torch_ringdist.horovod._handles import new_handle
from torch_ringdist.horovod._reductions import Average, Sum
from torch_ringdist.horovod._sets import group_of

if TYPE_CHECKING:
    from torch.optim import Optimizer

_BUCKET_BYTES = 25 << 20  # as of DistributedDataParallel


class _Averaging:
    """A bucket on its way, as a handle knows it."""

    def __init__(self, future: torch.futures.Future[Any], buffer: Tensor) -> None:
        self._future, self._buffer = future, buffer

    def poll(self) -> bool:
        return self._future.done()

    def wait(self) -> list[Tensor]:
        self._future.wait()
        return [self._buffer]


class _Bucket:
    """Parameters of one dtype and device, and where their gradients lie together. In the order of
    their own memory, as the codecs' residuals do."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        count = sum(p.numel() for p in parameters)
        self.buffer = parameters[0].new_zeros(count)
        self.views = list(self._views())

    def _views(self) -> Iterator[Tensor]:
        offset = 0
        for p in self.parameters:
            is_dense = torch.empty_like(p).stride() == p.stride()
            like = p if is_dense else torch.empty(p.shape)
            yield self.buffer.as_strided(p.size(), like.stride(), offset)
            offset += p.numel()


class CodedGradients(Gradients):
    """Each bucket is started when all of it is there, and those before it are started: so the order
    of operations, and the bits, are the same on all ranks and in all runs.

    Parameters that came since the last step, and those of dtypes that no codec takes, go by name,
    uncompressed.
    """

    def __init__(
        self, optimizer: Optimizer, names: dict[Tensor, str], settings: GradientSettings
    ) -> None:
        if settings.op not in (Average, Sum):
            raise ArgumentError(
                "DistributedOptimizer: a codec as compression= goes with op=hvd.Average or "
                f"hvd.Sum, got {settings.op}"
            )
        self.compression: OptimizerCompression | None = None
        self._buckets: list[tuple[Bundle, _Bucket]] = []
        self._ready: set[str] = set()  # buckets, by the names of their bundles
        self._started = 0
        super().__init__(optimizer, names, settings)
        self._compressor = NoneCompressor  # of what goes by name
        self._make_buckets(None)
        self._compress_anew()

    def set_groups(self, groups: int | Sequence[Sequence[Tensor]] | None) -> None:
        """As there; each group is a bucket, or one for each dtype."""
        super().set_groups(groups)
        if groups:
            self._make_buckets([bundle.parameters for bundle in self._bundles])

    def any_open(self) -> bool:
        return super().any_open() or bool(self._ready)

    def synchronize(self) -> None:
        try:
            super().synchronize()
        finally:
            self._ready.clear()
            self._started = 0
        if len(self._bundles) > len(self._buckets):
            self._make_buckets(None)

    def _follow(self) -> bool:
        moved = super()._follow()
        if moved:
            self._ready.clear()
            self._started = 0
            if self.compression is not None:
                self._compress_anew()
        return moved

    def _compress_anew(self) -> None:
        """In another world what is owed is the same."""
        if not self._takes_part:
            return
        before = self.compression
        owed = before.state_dict(local=True) if before is not None else None
        process_set = self.settings.process_set
        group = group_of(process_set, "DistributedOptimizer")
        backend = _world.required().add_coded(process_set.process_set_id or 0, group)
        codec = self.settings.compression
        assert isinstance(codec, Codec)
        self.compression = OptimizerCompression(backend, codec, self.names)
        if owed is not None:
            self.compression.load_state_dict(owed)

    def _make_buckets(self, lists: Sequence[Sequence[Tensor]] | None) -> None:
        """Of those lists; else about in the order in which gradients are computed."""
        all_of_it = list(self._bundle_of)
        limit = _BUCKET_BYTES if lists is None else None
        lists = lists or [all_of_it[::-1]]
        self._bundles, self._bundle_of, self._buckets = [], {}, []
        for parameters in lists:
            for alike in _alike(parameters, limit):
                bundle = self._add_bundle(self.names[alike[0]], alike)
                if alike[0].is_floating_point():
                    self._buckets.append((bundle, _Bucket(alike)))

    def _start(self, bundle: Bundle) -> None:
        if all(bundle is not one for one, _ in self._buckets):
            return super()._start(bundle)
        self._ready.add(bundle.name)
        while self._started < len(self._buckets):
            bundle, bucket = self._buckets[self._started]
            if bundle.name not in self._ready:
                return
            self._started += 1
            self._send(self._started - 1, bundle, bucket)

    def _send(self, index: int, bundle: Bundle, bucket: _Bucket) -> None:
        settings = self.settings
        for p, view in zip(bucket.parameters, bucket.views, strict=True):
            if p.grad is not None and p.grad.is_sparse:
                if not settings.sparse_as_dense:
                    raise TypeError(
                        f"DistributedOptimizer: {self.names[p]!r} has a sparse gradient, which no "
                        "codec takes; give sparse_as_dense=True"
                    )
                p.grad = p.grad.to_dense()
            if p.grad is None and p.requires_grad:
                p.grad = torch.zeros_like(p)
            if p.grad is None:  # frozen since
                view.zero_()
        live = [i for i, p in enumerate(bucket.parameters) if p.grad is not None]
        grads = [g for p in bucket.parameters if (g := p.grad) is not None]
        views = [bucket.views[i] for i in live]
        with torch.no_grad(), as_internal():
            torch._foreach_copy_(views, grads)
            if settings.average_aggregated_gradients:
                bucket.buffer /= self._passes
            assert self.compression is not None
            future = self.compression.average(
                index, len(self._buckets), bucket.buffer, bucket.parameters
            )
        bundle.handles.append(new_handle(_Averaging(future, bucket.buffer), lambda sums: sums[0]))

        def finish(averages: Tensor) -> None:
            if settings.op == Sum:
                averages *= settings.process_set.size()
            torch._foreach_copy_(grads, views)

        bundle.finish.append(finish)


def _alike(parameters: Sequence[Tensor], limit: int | None) -> Iterator[list[Tensor]]:
    """In lists of one dtype and device, each complete with the first that makes it long enough."""
    lists: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for p in parameters:
        alike = lists.setdefault((p.dtype, p.device), [])
        alike.append(p)
        if limit is not None and sum(one.nbytes for one in alike) >= limit:
            yield lists.pop((p.dtype, p.device))
    yield from lists.values()
