"""Compresses the gradients of an optimizer in buckets of a fixed order, like
DistributedDataParallel."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torch_ringdist.horovod import _global_state
from torch_ringdist.horovod._codec import Codec, OptimizerCompression
from torch_ringdist.horovod._compression import NoneCompressor
from torch_ringdist.horovod._errors import HorovodInternalError, as_internal
from torch_ringdist.horovod._gradients import GradientGroup, Gradients, GradientSettings, put_back
from torch_ringdist.horovod._handles import new_handle
from torch_ringdist.horovod._reductions import Sum
from torch_ringdist.horovod._sets import group_of

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from torch_ringdist._C import ProcessGroupRing

_BUCKET_BYTES = 25 << 20  # the default of DistributedDataParallel


class _Averaging:
    """A bucket in flight, with the functions that a handle needs."""

    def __init__(self, future: torch.futures.Future[Any], buffer: Tensor) -> None:
        self._future, self._buffer = future, buffer

    def poll(self) -> bool:
        return self._future.done()

    def wait(self) -> list[Tensor]:
        """Waits in steps of a second, so Python can handle signals, unlike Future.wait()."""
        done = threading.Event()
        self._future.add_done_callback(lambda _: done.set())
        while not done.wait(1):
            pass
        self._future.wait()
        return [self._buffer]

    def release_name(self) -> None:
        """Does nothing, because it has no name."""


class _Bucket:
    """Parameters of one dtype and device with a common gradient buffer.

    Gradients have the memory order of their parameters, as the residuals of codecs have.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        count = sum(p.numel() for p in parameters)
        self.buffer = parameters[0].new_zeros(count)
        self.views = list(self._views())

    def _views(self) -> Iterator[Tensor]:
        offset = 0
        for p in self.parameters:
            is_dense = torch.empty_like(p).stride() == p.stride()
            like = p if is_dense else torch.empty(p.shape, dtype=p.dtype, device="meta")
            yield self.buffer.as_strided(p.size(), like.stride(), offset)
            offset += p.numel()


class CompressedGradients(Gradients):
    """Averages gradients in compressed buckets.

    A bucket is started when all its gradients are ready and all earlier buckets are started. So the
    order of operations, and the bits of the results, are the same on all ranks and in all runs.

    Parameters added since the last step, and dtypes that no codec accepts, are reduced by name
    without compression.
    """

    def __init__(
        self, optimizer: Optimizer, names: dict[Tensor, str], settings: GradientSettings
    ) -> None:
        self._compression: OptimizerCompression | None = None
        # The previous compression, and the state for the next one.
        self._before: OptimizerCompression | None = None
        self._owed: dict[str, Any] | None = None
        self._backend: ProcessGroupRing | None = None
        self._is_agreed = False  # step counts agree
        self._failure: BaseException | None = None  # why a bucket was not sent; others wait for it
        self._lists: list[list[Tensor]] | None = None  # lists given by the caller
        self._buckets: list[tuple[GradientGroup, _Bucket]] = []
        self._ready: set[str] = set()  # names of buckets that are ready
        self._started = 0
        self._has_new = False  # new parameters are not in buckets yet
        super().__init__(optimizer, names, settings)
        self._compressor = NoneCompressor  # for gradients reduced by name
        self._make_buckets()

    @property
    def compression(self) -> OptimizerCompression | None:
        """The compression state; None if this rank is alone or not in the process set."""
        if not self.takes_part:
            return None
        if self._compression is None:
            self._compression = self._make_compression()
        return self._compression

    def set_groups(self, groups: int | Sequence[Sequence[Tensor]] | None) -> None:
        """Sets the groups as in Gradients. Each group is a bucket, or one bucket per dtype."""
        super().set_groups(groups)
        if groups:
            self._lists = [bundle.parameters for bundle in self._bundles]
            self._make_buckets()

    def adopt(self, optimizer: Optimizer) -> None:
        before = len(self._bundles)
        super().adopt(optimizer)
        self._has_new |= len(self._bundles) > before

    def any_open(self) -> bool:
        return super().any_open() or bool(self._ready)

    def synchronize(self) -> None:
        try:
            super().synchronize()
        finally:
            self._begin_step()
        if self._has_new:
            self._put_off()
            self._make_buckets()

    def _stepped(self) -> None:
        """Does nothing, because there is nothing to tune."""

    def _follow(self) -> bool:
        moved = super()._follow()
        if moved:
            self._put_off()
            if (world := _global_state.current()) is not None and world.residuals is not None:
                self._owed = None  # world.residuals has the last commit
            self._backend, self._is_agreed, self._failure = None, False, None
            self._begin_step()
        return moved

    def _begin_step(self) -> None:
        self._ready.clear()
        self._started = 0

    def _put_off(self) -> None:
        """Keeps the state for the next compression, which has other names or another group."""
        if self._compression is not None:
            self._owed = self._compression.state_dict(local=True)
            self._before, self._compression = self._compression, None

    # Creates the compression, with the group and the state that were kept.
    def _make_compression(self) -> OptimizerCompression:
        process_set, codec = self.settings.process_set, self.settings.compression
        assert isinstance(codec, Codec)
        if self._backend is None:
            group = group_of(process_set, "DistributedOptimizer")
            self._backend = _global_state.required().add_coded(
                process_set.process_set_id or 0, group, self.names.values()
            )
        out = OptimizerCompression(self._backend, codec, self.names)
        if (residuals := _global_state.required().residuals) is not None:
            residuals.add(out, instead_of=self._before)
        self._before = None
        if self._owed is not None:
            out.load_state_dict(self._owed)
            self._owed = None
        return out

    def _make_buckets(self) -> None:
        """Creates buckets from the caller's lists and later parameters. Without lists, the order is
        roughly that in which gradients are computed."""
        all_of_it = [p for p in self.names if p in self._bundle_of][::-1]
        lists = self._lists or []
        listed = {p for one in lists for p in one}
        rest = [p for p in all_of_it if p not in listed]
        self._bundles, self._bundle_of, self._buckets = [], {}, []
        self._has_new = False
        alike = [part for one in lists for part in _alike(one, None)]
        for parameters in [*alike, *_alike(rest, _BUCKET_BYTES)]:
            bundle = self._add_bundle(self.names[parameters[0]], parameters)
            if parameters[0].is_floating_point():
                self._buckets.append((bundle, _Bucket(parameters)))

    # Marks a group as ready and sends all buckets that may follow in order.
    def _start(self, bundle: GradientGroup) -> None:
        if all(bundle is not one for one, _ in self._buckets):
            return super()._start(bundle)
        if self._failure is not None:
            raise HorovodInternalError(
                "DistributedOptimizer: this rank has failed to send a bucket of gradients before, "
                f"for which the others wait: {self._failure}"
            ) from self._failure
        self._ready.add(bundle.name)
        while self._started < len(self._buckets):
            bundle, bucket = self._buckets[self._started]
            if bundle.name not in self._ready:
                return
            self._started += 1
            try:
                self._send(self._started - 1, bundle, bucket)
            except BaseException as error:
                self._failure = error
                self._tell_others()
                raise

    # Aborts the group, so that other ranks fail instead of waiting for a bucket.
    def _tell_others(self) -> None:
        with contextlib.suppress(Exception):  # other ranks also get an error then
            if self._backend is None:
                self._compression = self._make_compression()
            if self._backend is not None:
                self._backend.abort()

    # Copies the gradients of a bucket to its buffer and starts averaging.
    def _send(self, index: int, bundle: GradientGroup, bucket: _Bucket) -> None:
        settings = self.settings
        for p, view in zip(bucket.parameters, bucket.views, strict=True):
            if p.grad is not None and p.grad.is_sparse and not settings.sparse_as_dense:
                raise TypeError(
                    f"DistributedOptimizer: {self.names[p]!r} has a sparse gradient, which no "
                    "codec takes; give sparse_as_dense=True"
                )
            if p.grad is None and p.requires_grad:
                p.grad = torch.zeros_like(p)
            if p.grad is None:  # frozen after it was added
                view.zero_()
        live = [i for i, p in enumerate(bucket.parameters) if p.grad is not None]
        parameters = [bucket.parameters[i] for i in live]
        grads = [g.to_dense() for p in parameters if (g := p.grad) is not None]
        views = [bucket.views[i] for i in live]
        compression = self.compression
        assert compression is not None, "who is alone reduces nothing"
        if not self._is_agreed:
            with as_internal():
                compression.agree_on_steps()
            self._is_agreed = True
        with torch.no_grad(), as_internal():
            if live:
                torch._foreach_copy_(views, grads)
            if settings.average_aggregated_gradients:
                bucket.buffer /= self._passes
            future = compression.average(
                index, len(self._buckets), bucket.buffer, bucket.parameters
            )
        bundle.handles.append(new_handle(_Averaging(future, bucket.buffer), lambda sums: sums[0]))

        def finish(averages: Tensor) -> None:
            if settings.op == Sum:
                averages *= settings.process_set.size()
            if live:
                torch._foreach_copy_(grads, views)
            for p, grad in zip(parameters, grads, strict=True):
                put_back(p, grad)

        bundle.finish.append(finish)


def _alike(parameters: Sequence[Tensor], limit: int | None) -> Iterator[list[Tensor]]:
    """Yields lists of one dtype and device, each ended when it reaches `limit` bytes."""
    lists: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for p in parameters:
        alike = lists.setdefault((p.dtype, p.device), [])
        alike.append(p)
        if limit is not None and sum(one.nbytes for one in alike) >= limit:
            yield lists.pop((p.dtype, p.device))
    yield from lists.values()
