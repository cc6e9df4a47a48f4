"""Looking inside this process: info, stats and dump."""

from __future__ import annotations

from typing import Any

from torch_ringdist import _native


def info() -> dict[str, Any]:
    """What this build and this process can do, and how they are set.

    Keys: version, torch (built for), ucx (version, path, origin), cuda (built_for:
    architectures; state), gpus (of this host: problem, driver, devices, pairs, rdma, ucx_for_cuda;
    docs/gpu.md), transports, algorithms, codecs, operations, limits, variables, costs (origin;
    inside and between, the constants that a group of which this process is rank 0 would plan by).
    ``python -m torch_ringdist info`` prints it, and which of the GPUs CUDA sees, and how: to ask
    starts CUDA in a process, whose forked children then cannot use it, so this does not.

    Raises:
        ImportError: the native module is missing or was built for another torch.
        ValueError: a RINGDIST_* variable, or the file that RINGDIST_COSTS names, is not accepted.

    Any thread may call it.
    """
    from torch_ringdist import _devices  # not with every `import torch`
    from torch_ringdist._costs import Costs

    out = _native.load().info()
    named = next((row[1] for row in out["variables"] if row[0] == "RINGDIST_COSTS"), "")
    costs, origin = Costs.in_force(named)
    gpus = {**_devices.survey(), "ucx_for_cuda": _devices.ucx_for_cuda(out["ucx"]["path"])}
    return {**out, "gpus": gpus, "costs": {"origin": origin, **costs.numbers()}}


def info_with_devices() -> dict[str, Any]:
    """As info(), and in cuda ``devices``, (name, compute capability, bytes) of each, with ``state``
    saying why there are none. For a process that does nothing else: see info().
    """
    out = info()
    if out["cuda"]["state"] == "ok":
        devices, problem = _native.load().cuda_devices()
        out["cuda"] = {**out["cuda"], "devices": devices, "state": problem or "ok"}
    return out


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
