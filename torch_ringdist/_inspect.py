"""Looking inside this process: info, stats and dump."""

from __future__ import annotations

from typing import Any

from torch_ringdist import _native


def info() -> dict[str, Any]:
    """What this build and this process can do, and how they are set.

    Keys: version, torch (built for), ucx (version, path, origin), transports, algorithms, codecs,
    operations, limits, variables. ``python -m torch_ringdist info`` prints it.

    Raises:
        ImportError: the native module is missing or was built for another torch.

    Any thread may call it.
    """
    return _native.load().info()


def stats() -> dict[str, int]:
    """Counters of this process since its start, over all its groups.

    Keys: at least bytes_sent, bytes_received, messages_sent, messages_received and ops_completed.
    The counters are read one by one while the engine runs: between two of them it may move on.

    Raises:
        ImportError: the native module is missing or was built for another torch.

    Any thread may call it.
    """
    return _native.load().stats()


def dump() -> str:
    """The state of this process as text: operations in flight, their step, peers and credits.

    For another process, also one that hangs: ``python -m torch_ringdist dump PID``.

    Raises:
        ImportError: the native module is missing or was built for another torch.

    Any thread may call it, also while another is blocked in an operation.
    """
    return _native.load().dump()
