"""Registers the backend "ringdist" in torch.distributed without loading the native module.

torch calls autoload() at the end of ``import torch`` (entry point group torch.backends, all
versions). It calls register() when a group requests "ringdist" (torch.distributed.backends, torch
2.14 and newer). autoload() runs in every process of the environment, so it must be fast and must
not raise.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch_ringdist import _native  # small; importing it later would delay forked ranks

if TYPE_CHECKING:
    from torch_ringdist._C import ProcessGroupRing

NAME = "ringdist"


class Successor:
    """Takes the place of options and holds the backend of a new generation, which already exists
    (_generation.py)."""

    def __init__(self, backend: ProcessGroupRing) -> None:
        self.backend = backend


def is_being_imported(module: str) -> bool:
    """Returns True while the import of `module` is under way in this process."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return getattr(spec, "_initializing", False)


def is_command_line() -> bool:
    """Returns True if this process runs ``ringdist`` or ``python -m torch_ringdist``."""
    if sys.argv[:1] == ["-m"]:  # Python looks for the module that it is to run
        flag = sys.orig_argv.index("-m") if "-m" in sys.orig_argv else -1
        return sys.orig_argv[flag + 1 : flag + 2] == ["torch_ringdist"]
    # A script of this name in a training job loses nothing: `import torch` registers the backend.
    return os.path.basename((sys.argv or [""])[0]) == "ringdist"


def autoload() -> None:
    """Registers the backend and never raises; entry point of torch.backends.

    It prints nothing either, because every ``import torch`` would print it. An import of
    torch_ringdist shows the error.
    """
    try:
        if "torch.distributed" in sys.modules or _needs_autoload():
            register()
    except Exception:
        # Forgets the package. The next import then runs its __init__ again and retries.
        if not is_being_imported("torch_ringdist"):
            sys.modules.pop("torch_ringdist", None)


def _needs_autoload() -> bool:
    # Importing torch.distributed takes 0.1 s. Newer versions do not need it here, because they
    # request the backend by name through register().
    return _major_minor(sys.modules["torch"].__version__) < (2, 14)


def _major_minor(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def register() -> None:
    """Registers "ringdist" for cpu and cuda; a second call does nothing.

    Call it from one thread at a time, like torch's own registrations.

    Raises:
        ImportError: torch is missing, or was built without torch.distributed.
    """
    import torch.distributed as dist

    if not dist.is_available():
        raise ImportError("torch_ringdist needs a torch that was built with torch.distributed")
    if not hasattr(dist.Backend, NAME.upper()):
        from torch_ringdist import _coalescing, _rendezvous

        # torch 2.11 to 2.13 would iterate over the letters of a string, so this is a list.
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda"])
        _coalescing.guard_regions()
        _rendezvous.watch()


def torchrun_handler() -> Callable[[Any], Any]:
    """Returns the function that makes the handler of ``torchrun --rdzv-backend=ringdist``; entry
    point of torchrun.handlers. It imports nothing, because every torchrun calls it."""

    def create_handler(params: Any) -> Any:
        from torch_ringdist import _torchrun

        return _torchrun.create_handler(params)

    return create_handler


def create(dist_options: Any, backend_options: Any = None) -> ProcessGroupRing:
    """Creates this rank's backend of one process group. torch calls it; users do not.

    Args:
        dist_options: torch's description of the group, with store, rank, size, timeout, name and
            members.
        backend_options: the user's pg_options, or a Successor.

    Raises:
        TypeError: backend_options is neither None nor a torch_ringdist.Options.
        ValueError: an option, or a RINGDIST_* variable, has a value that is not accepted.
        ImportError: the native module is missing, or was built for another torch.
        RuntimeError: the group could not be created. The message names the step that failed.
    """
    if isinstance(backend_options, Successor):
        return backend_options.backend
    # The class Options is created on first use, which takes longer than loading _C.
    options = options_as_text(backend_options, 'init_process_group("ringdist"): pg_options')
    native = _native.load()
    _native.enable_stacks(native)
    # For the default group torch passes no list; all ranks are members.
    members = list(dist_options.global_ranks_in_group) or list(range(dist_options.group_size))
    if getattr(dist_options, "enable_reconfigure", False):  # torch 2.14
        return native.create_reconfigurable(
            dist_options.store,
            dist_options.group_rank,
            dist_options.group_size,
            dist_options.timeout,
            dist_options.group_id,
            options,
            read_costs,
        )
    return native.create_backend(
        dist_options.store,
        dist_options.group_rank,
        dist_options.group_size,
        dist_options.timeout,
        dist_options.group_id,
        members,
        options,
        read_costs,
    )


def read_costs(path: str) -> dict[str, dict[str, float]]:
    """Returns the constants of the file that RINGDIST_COSTS or Options(costs=) names.

    Raises:
        ValueError: the file cannot be read or is not accepted. The message names the file and the
            reason.
    """
    from torch_ringdist._costs import Costs

    return Costs.from_file(path).numbers()


def options_as_text(given: Any, argument: str) -> dict[str, str]:
    """Returns options as the native module takes them.

    Raises:
        TypeError: `given` is neither None nor a torch_ringdist.Options. The message names
            `argument`.
    """
    if given is None:
        return {}
    from torch_ringdist._options import Options

    if not isinstance(given, Options):
        kind = type(given)
        raise TypeError(
            f"{argument} must be a torch_ringdist.Options or None, "
            f"got a {kind.__module__}.{kind.__qualname__}"
        )
    return given.as_text()
