"""Installs a new generation of a group in torch.distributed; shared by shrink() and join()."""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from torch_ringdist import _address, _native, _served_store
from torch_ringdist._collectives import backend_of
from torch_ringdist._errors import ArgumentError
from torch_ringdist._registration import Successor
from torch_ringdist._units import LONGEST

if TYPE_CHECKING:
    from torch_ringdist._C import NextGeneration, ProcessGroupRing

# Separates the group's name from the generation number, as in the messages of its operations.
_GENERATION = " (generation "
# Limit for the connection to a new store. That store exists before any rank learns its address.
_CONNECT_TIME = timedelta(seconds=10)


def name_of(name: str, generation: int) -> Any:
    """Returns the name of that generation of a group; `name` is that of any generation.

    PyTorch needs it. Members may skip generations, so neither names nor store keys depend on the
    previous generation.
    """
    return f"{name.partition(_GENERATION)[0]}{_GENERATION}{generation})"


def shared_store(store: dist.Store) -> dist.Store:
    """Returns the store below all prefixes of `store`, which newcomers can find too."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return store


def install_default(
    outcome: NextGeneration,
    name: str,
    backend_name: str,
    store: dist.Store,
    timeout: timedelta,
    device: torch.device | None,
) -> dist.ProcessGroup:
    """Makes the new generation the default group. If that fails, nothing changes.

    Args:
        outcome: the generation.
        name: name of the default group in any of its generations.
        backend_name: the backend as given to init_process_group().
        store: a store that all members reach, under any prefix.
        timeout: timeout of operations.
        device: the group's device_id.

    Returns:
        The new default group.
    """
    world, size = c10d._world, outcome.backend.size()
    new: Any
    new, _ = c10d._new_process_group_helper(
        size,
        outcome.backend.rank(),
        [],
        backend_name,
        # Newcomers can derive only this prefix. Without the id, several jobs could share it.
        dist.PrefixStore(f"ringdist/{outcome.id}", shared_store(store)),
        name_of(name, outcome.generation),
        backend_options=Successor(outcome.backend),
        timeout=timeout,
        device_id=device,
        group_desc="default_pg",
    )
    world.pg_group_ranks[new] = {rank: rank for rank in range(size)}
    c10d._update_default_pg(new)
    # Resets the counter that names groups, as init_process_group() does. Members may have created
    # different numbers of groups before the loss.
    world.group_count = 1
    return new


def backend_of_generations(group: dist.ProcessGroup | None, caller: str) -> ProcessGroupRing:
    """Returns the backend of a group that can have generations; raises ArgumentError or TypeError
    for others."""
    backend = backend_of(group, caller)
    checked: Any = dist.group.WORLD if group is None else group
    if checked not in c10d._world.pg_map:
        raise ArgumentError(f"ringdist: {caller}: the group given has been destroyed")
    for device in checked._device_types:
        other = checked._get_backend(device)
        other = getattr(other, "wrapped_pg", other)
        if not isinstance(other, type(backend)):
            raise ArgumentError(
                f"ringdist: {caller}: group must be one of the backend ringdist alone; "
                f"{other.name()} serves its {device.type} tensors"
            )
    return backend


def open_client(host: str, port: int, is_own: bool, timeout: timedelta) -> dist.Store:
    """Opens a client of the store at an address: of ringdist's own, or a TCPStore.

    It probes a TCPStore first, because PyTorch's client waits forever if a process accepts the
    connection and does not answer.

    Raises:
        torch.distributed.DistError: nothing answers within the timeout.
    """
    if is_own:
        return _served_store.open_own(host, port, serves=False, timeout=timeout)
    _native.load().BoundedStore(host, port, limit=timeout).connect(timeout)
    return dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timeout)


def connect(address: str, timeout: timedelta) -> dist.Store | None:
    """Returns the store at that address; None, with a warning, if it does not answer.

    In that case its process may be the next to be lost. The new group works; it detects that loss
    and can be shrunk again.

    Raises:
        torch.distributed.DistBackendError: another member has sent no address.
    """
    place = _address.parse_store(address)
    if place is None:
        raise dist.DistBackendError(
            f"ringdist: a member has sent {address!r} in place of its store's address"
        )
    try:
        store = open_client(*place, min(timeout, _CONNECT_TIME))
    except RuntimeError as error:
        warnings.warn(
            f"ringdist: the store at {address}, which a survivor serves, cannot be reached, so no "
            f"further groups can be created: {error}",
            stacklevel=4,
        )
        return None
    store.set_timeout(timeout)
    return store


# Returns `timeout`, or `default` for None, capped at LONGEST.
#
# Raises:
#
#     TypeError: `timeout` is neither a timedelta nor None.
#     ArgumentError: it is not above 0.
def checked_timeout(operation: str, timeout: Any, default: timedelta) -> timedelta:
    if timeout is None:
        return default
    if not isinstance(timeout, timedelta):
        raise TypeError(
            f"ringdist: {operation}: timeout must be a datetime.timedelta or None, "
            f"got {timeout!r} of type {type(timeout).__name__}"
        )
    if timeout <= timedelta(0):
        raise ArgumentError(
            f"ringdist: {operation}: timeout must be a timedelta above 0, or None, got {timeout!r}"
        )
    return min(timeout, LONGEST)
