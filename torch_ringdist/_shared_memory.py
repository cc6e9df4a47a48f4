"""Allocates tensors that the ranks of a host read in place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch_ringdist import _native


@contextlib.contextmanager
def shared_memory() -> Iterator[None]:
    """Allocates CPU tensors of this thread in memory that other ranks of the host can read.

        with torch_ringdist.shared_memory():
            tensor = torch.empty(1 << 24)
            model = DistributedDataParallel(model)  # its buckets
        dist.all_reduce(tensor)  # nothing is staged: the others read `tensor` itself

    Operations give the same results with and without it, whichever ranks use it. Ranks on one host
    read such tensors in place; between hosts they are sent as usual. An operation that only sends
    (``broadcast`` from its root, ``send``) then ends when its readers are done.

    While any thread is inside, freed memory is kept for the next tensor of its size, up to 1 GiB in
    all, because new memory costs zeroing and page faults. A training loop that allocates its
    buffers in each step, as FSDP does, should therefore run inside as a whole.

    It applies to allocations of 64 KiB or more; smaller tensors are ordinary. A process can share
    at most 256 tensors, or as many as a quarter of its file descriptors. Tensors beyond that are
    ordinary too, and a warning reports it. The memory is allocated and zeroed at once; RuntimeError
    is raised if the machine does not have enough.

    A forked child shares the memory, as after ``share_memory_()``: its parent sees what it writes,
    and no later tensor reuses that memory. The child begins outside, so tensors that it allocates
    are its own, as those of DataLoader workers. Copies by ``clone()``, pickling or ``torch.save``
    are ordinary tensors. A tensor that grows by ``resize_`` stays in shared memory only if the call
    runs inside.

    DDP reallocates its buckets during the second step, so keep that step inside as well.
    """
    native = _native.load()
    native.begin_sharing()
    try:
        yield
    finally:
        native.end_sharing()
