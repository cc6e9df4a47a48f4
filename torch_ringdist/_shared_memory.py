"""Tensors that the ranks of a host read where they lie."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch_ringdist import _native


@contextlib.contextmanager
def shared_memory() -> Iterator[None]:
    """CPU tensors that this thread allocates inside lie in memory that other ranks can read.

        with torch_ringdist.shared_memory():
            tensor = torch.empty(1 << 24)
            model = DistributedDataParallel(model)  # its buckets
        dist.all_reduce(tensor)  # nothing is staged: the others read `tensor` itself

    Operations on such tensors are the same in all else, whichever ranks have them: those on one
    host read them in place; between hosts they are sent as ever. An operation that only sends
    (``broadcast`` from its root, ``send``) then ends when its readers are done.

    While any thread is inside, memory that is freed is kept for the next tensor of its size, up to
    1 GiB in all, since new memory costs zeroes and page faults. So a training loop that makes its
    buffers anew in each step, as FSDP does, belongs inside as a whole, not step by step.

    It holds for memory of 64 KiB or more; smaller tensors are as usual, and so are all others
    beyond 256 tensors in a process, or a quarter of its file descriptors (a warning says so). The
    memory is taken, and zeroed, at once: RuntimeError if the machine does not have so much.

    A forked child has the same memory, as after ``share_memory_()``: what it writes its parent
    sees, and no other tensor is given it later. It begins outside: what it allocates, as the
    workers of a DataLoader do, is its own. Copies - ``clone()``, pickling, ``torch.save`` -
    are usual tensors. One that grows by ``resize_`` is in shared memory again only if that, too,
    happens inside.

    DDP lays its buckets out anew during the second step: keep that inside as well.
    """
    native = _native.load()
    native.begin_sharing()
    try:
        yield
    finally:
        native.end_sharing()
