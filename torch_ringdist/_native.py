"""Loads the native module, or explains why it cannot be loaded and which command fixes that."""

from __future__ import annotations

import atexit
import contextlib
import functools
import multiprocessing.util
import os
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

_REBUILD = (
    "In a checkout of torch-ringdist, in the environment that is to use it, type\n"
    "    make build\n"
    "or  pip install --no-build-isolation --no-deps --force-reinstall ."
)

_stops: dict[int, Callable[[], None]] = {}  # shutdown function by process id
_stacks: dict[int, bool] = {}  # processes in which enable_stacks() has been called


def load() -> ModuleType:
    """Returns the native module torch_ringdist._C and loads it on the first call. Any thread may
    call it.

    The module is shut down at interpreter exit, after all exit handlers that were registered since
    the first import of torch_ringdist. `import torch` imports it, unless
    TORCH_DEVICE_BACKEND_AUTOLOAD=0.

    Raises:
        ImportError: the module was not built, was built for another torch, or could not be loaded.
    """
    return _load(os.getpid())


# Cached per process, because a forked child has its own exit.
@functools.cache
def _load(process: int) -> ModuleType:
    _check_build()
    # The native classes derive from classes of torch, which have to exist first.
    import_module("torch.distributed")
    try:
        native = import_module("torch_ringdist._C")
    except ModuleNotFoundError as error:
        if error.name != "torch_ringdist._C":
            raise
        raise _not_built() from None
    except ImportError as error:
        raise ImportError(f"torch_ringdist._C could not be loaded: {error}\n{_REBUILD}") from error
    _stops[process] = native.shutdown
    return native


def enable_stacks(native: ModuleType) -> None:
    """Lets ``ringdist status`` read the stack of this process' main thread. Any thread may call it,
    also repeatedly, and a forked child has to call it again."""
    if _stacks.get(os.getpid()):
        return
    # Without a free signal or descriptor, there are no stacks; the rest of `status` needs neither.
    with contextlib.suppress(RuntimeError):
        native.enable_main_thread_stack()
    _stacks[os.getpid()] = True


def _check_build() -> None:
    # The layout of torch's C++ classes changes between minor versions. A module of another version
    # either fails with a bare "undefined symbol", or loads and corrupts memory.
    try:
        built = import_module("torch_ringdist._build_info")
    except ModuleNotFoundError as error:
        if error.name != "torch_ringdist._build_info":
            raise
        raise _not_built() from None
    here = import_module("torch").__version__
    if here.split(".")[:2] != [str(part) for part in built.TORCH_MAJOR_MINOR]:
        raise ImportError(
            f"torch_ringdist was built for torch {built.TORCH_VERSION}, but this is torch {here}: "
            f"a build serves one minor version of torch.\n{_REBUILD}"
        )


def _not_built() -> ImportError:
    # The message names the folder because of a common mistake: Python started in an unbuilt
    # checkout prefers that to the installed package.
    folder = os.path.dirname(os.path.abspath(__file__))
    return ImportError(f"torch_ringdist's native module is not built in {folder}.\n{_REBUILD}")


def _stop() -> None:
    # A forked child inherits the exit handler, but not the threads that it would stop.
    if stop := _stops.pop(os.getpid(), None):
        stop()


# Registered on import, because handlers run last in, first out. Handlers of users may need a group,
# and they are registered later than `import torch`.
atexit.register(_stop)
# Newer versions of Python clear these handlers in children of multiprocessing and run only the
# handlers of multiprocessing.
multiprocessing.util.register_after_fork(_stop, atexit.register)
