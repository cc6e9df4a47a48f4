"""The native module. Import it through torch_ringdist._native.load(), which checks the build."""

from datetime import timedelta
from typing import TypedDict

from torch.distributed import Store
from torch.distributed.distributed_c10d import _Backend

class ProcessGroupRing(_Backend):
    """One rank's part of a group. Its operations may be called from any thread; the ranks match
    them by their order of call, so two threads that call on one group need an order of their own.
    """

class _Ucx(TypedDict):
    version: str
    path: str
    origin: str  # "wheel", "system", or "not loaded: <why>"

class _Info(TypedDict):
    version: str
    torch: str  # the minor version that this was built for, as "2.13"
    ucx: _Ucx
    transports: list[tuple[str, str, str]]  # name, description, "ok" or why not
    algorithms: list[tuple[str, str]]  # name, description
    codecs: list[tuple[str, str]]  # name, description
    operations: list[str]
    limits: list[tuple[str, str, str]]  # name, value, meaning
    variables: list[tuple[str, str, str, str, str]]  # name, value, default, meaning, set|default

def create_backend(
    store: Store,
    rank: int,
    size: int,
    timeout: timedelta,
    group_name: str,
    global_ranks: list[int],
    options: dict[str, str],
) -> ProcessGroupRing:
    """Create this rank's part of a group, without waiting for the other ranks.

    `options` has option names and their values as text, as in the RINGDIST_* variables, which they
    override; a bool is "true" or "false".

    Raises ValueError naming the option, the value and what is accepted; RuntimeError when the
    store or the network fails. Any thread may call it.
    """

def info() -> _Info:
    """Versions, registries, limits and variables. Any thread may call it."""

def options() -> list[tuple[str, str, str, str]]:
    """The fields of Options: name, type ("str", "int", "float" or "bool"), default, meaning."""

def stats() -> dict[str, int]:
    """Counters since process start: bytes_sent, bytes_received, messages_sent, messages_received,
    ops_completed and more. Any thread may call it."""

def dump() -> str:
    """State of this process: operations in flight, step, peers, credits. Any thread may call it."""

def shutdown() -> None:
    """Send what is queued and stop all threads, within bounded time; a second call does nothing.
    Any thread may call it; operations that are still pending fail."""
