"""Prepares memory, so that no candidate has to wait for it.

The kernel clears a page at its first use, and the C library returns large blocks and requests them
again. The cost falls on candidates by chance, depending on their order and on the end of the heap.
It was up to 0.4 s in a candidate's first two steps, and 40 ms in a later one. So the whole heap is
touched before the clock starts, and kept.
"""

from __future__ import annotations

import ctypes

# Constants of malloc.h in glibc.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8


def prepare_heap(size: int) -> bool:
    """Makes malloc serve all threads from `size` bytes of touched pages, and keep them.

    Call it before other threads allocate. Returns False without glibc, or if glibc refuses.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    # All threads allocate from one heap, which never shrinks.
    settings = {_M_ARENA_MAX: 1, _M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: -1}
    for option, value in settings.items():
        if not libc.mallopt(option, value):
            return False
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
    block = libc.malloc(size)
    if not block:
        raise MemoryError(f"prepare_heap: no {size >> 20} MiB for this rank")
    ctypes.memset(block, 1, size)
    libc.free(block)
    return True
