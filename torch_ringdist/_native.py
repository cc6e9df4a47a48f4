"""Loads the native module, or says why it cannot be and what to type."""

from __future__ import annotations

import atexit
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

_stops: dict[int, Callable[[], None]] = {}  # by process


def load() -> ModuleType:
    """The native module torch_ringdist._C, loaded on the first call; stopped at interpreter exit,
    after all exit handlers that were registered since torch_ringdist was first imported, as
    `import torch` does unless TORCH_DEVICE_BACKEND_AUTOLOAD=0.

    Raises:
        ImportError: it was not built, was built for another torch, or could not be loaded.

    Any thread may call it.
    """
    return _load(os.getpid())


# For each process: a child that was forked has an exit of its own.
@functools.cache
def _load(process: int) -> ModuleType:
    _check_build()
    # The native classes derive from torch's, which have to exist first.
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


def _check_build() -> None:
    # Between two minors of torch the layout of its C++ classes changes: such a module either fails
    # with a bare "undefined symbol", or loads and corrupts memory.
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
    # The folder is named since it is the usual surprise: Python started in an unbuilt checkout
    # prefers that to the installed package.
    folder = os.path.dirname(os.path.abspath(__file__))
    return ImportError(f"torch_ringdist's native module is not built in {folder}.\n{_REBUILD}")


def _stop() -> None:
    # A forked child inherits the exit handler, but not the threads that it would stop.
    if stop := _stops.pop(os.getpid(), None):
        stop()


# Now, for `import torch` comes here: handlers run last in, first out, and users' may need a group.
atexit.register(_stop)
# Newer versions of Python clear the handlers in multiprocessing's children, and run theirs.
multiprocessing.util.register_after_fork(_stop, atexit.register)
