"""Makes "ringdist" known to torch.distributed, without loading anything native.

torch calls autoload() at the end of ``import torch`` (entry point group torch.backends, all
versions), and register() when a group asks for "ringdist" (torch.distributed.backends, torch 2.14
and newer). An exception, or a slow import, in the first would hurt every user of the environment,
also those who never heard of this package.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from torch_ringdist import _native  # small; and not when ranks that were forked wait for it

if TYPE_CHECKING:
    from torch_ringdist._C import ProcessGroupRing

NAME = "ringdist"


class Successor:
    """In place of options: the backend of the new group, which exists already (_generation.py)."""

    def __init__(self, backend: ProcessGroupRing) -> None:
        self.backend = backend


def is_being_imported(module: str) -> bool:
    """Whether the import of `module` is under way in this process."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return getattr(spec, "_initializing", False)


def autoload() -> None:
    """Entry point of torch.backends: register, and never raise.

    It says nothing either, as every ``import torch`` would print it. Who imports torch_ringdist
    gets the error there.
    """
    try:
        if "torch.distributed" in sys.modules or _needs_autoload():
            register()
    except Exception:
        # Forget the package, for that import to run its __init__ once more, and so to try again.
        if not is_being_imported("torch_ringdist"):
            sys.modules.pop("torch_ringdist", None)


def _needs_autoload() -> bool:
    # Importing torch.distributed costs a tenth of a second. Newer versions need not pay it here:
    # they ask for the backend by name, through register().
    return _major_minor(sys.modules["torch"].__version__) < (2, 14)


def _major_minor(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def register() -> None:
    """Register "ringdist" for cpu and cuda; a second call does nothing.

    Raises:
        ImportError: torch is missing, or was built without torch.distributed.

    Call it from one thread at a time, as any of torch's registrations.
    """
    import torch.distributed as dist

    if not dist.is_available():
        raise ImportError("torch_ringdist needs a torch that was built with torch.distributed")
    if not hasattr(dist.Backend, NAME.upper()):
        from torch_ringdist import _coalescing, _rendezvous

        # A list, not "cpu": torch 2.11-2.13 would walk a string letter by letter.
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda"])
        _coalescing.guard_regions()
        _rendezvous.watch()


def create(dist_options: Any, backend_options: Any = None) -> ProcessGroupRing:
    """Create this rank's backend of one process group; torch calls it, users do not.

    Args:
        dist_options: torch's description of the group: store, rank, size, timeout, name, members.
        backend_options: what the user gave as pg_options; or a Successor.

    Raises:
        TypeError: backend_options is neither None nor a torch_ringdist.Options.
        ValueError: an option, or a RINGDIST_* variable, has a value that is not accepted.
        ImportError: the native module is missing, or was built for another torch.
        RuntimeError: the group could not be created; the message says which step failed.
    """
    if isinstance(backend_options, Successor):
        return backend_options.backend
    # The class of Options is made when it is first used, which takes longer than to load _C.
    options = options_as_text(backend_options, 'init_process_group("ringdist"): pg_options')
    native = _native.load()
    # torch gives no list for the default group, whose members are all ranks.
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
    """The constants of a file that RINGDIST_COSTS or Options(costs=) names.

    Raises:
        ValueError: there is none that can be read, or it is not accepted; names it, and why.
    """
    from torch_ringdist._costs import Costs

    return Costs.from_file(path).numbers()


def options_as_text(given: Any, argument: str) -> dict[str, str]:
    """As the native module takes them.

    Raises:
        TypeError: neither None nor a torch_ringdist.Options; names the argument.
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
