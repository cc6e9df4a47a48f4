"""Memory that no candidate has to wait for.

The kernel clears a page when it is first touched, and the C library gives large blocks back and
asks for them anew. Who pays is luck: of the place in the order, of what else lies at the heap's
end. It was up to 0.4 s of a candidate's first two steps, and 40 ms of any later one. So all of the
heap is touched before the clock starts, and kept.
"""

from __future__ import annotations

import ctypes

# malloc.h of glibc.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8


def prepare_heap(size: int) -> bool:
    """From now on, malloc has `size` bytes of touched pages, for all threads, and returns none.

    Call it before other threads allocate. False where there is no glibc, or it refuses.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    # One heap for all threads; everything comes from it; it never shrinks.
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
