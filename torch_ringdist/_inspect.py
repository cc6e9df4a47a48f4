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
    costs, origin = Costs.in_force(_value_of(out, "RINGDIST_COSTS"))
    gpus = {**_devices.survey(), "ucx_for_cuda": _devices.ucx_for_cuda(out["ucx"]["path"])}
    return {**out, "gpus": gpus, "costs": {"origin": origin, **costs.numbers()}}


def info_with_devices() -> dict[str, Any]:
    """As info(), and in cuda ``devices``, (name, compute capability, bytes, PCI address) of each,
    with ``state`` saying why there are none, and ``ways``, (ranks, the way of their tensors and
    why). For a process that does nothing else: see info().
    """
    out = info()
    if out["cuda"]["state"] == "ok":
        devices, problem = _native.load().cuda_devices()
        ways = _ways(len(devices), _value_of(out, "RINGDIST_DEVICE_PATH")) if devices else []
        state = problem or "ok"
        out["cuda"] = {**out["cuda"], "devices": devices, "state": state, "ways": ways}
    return out


def _ways(devices: int, path: str) -> list[tuple[str, str]]:
    """How CUDA tensors of ranks on this host would go, with the NCCL that is here."""
    out = []
    for name, ranks, shared in (("one rank on each", devices, devices), ("two on one", 2, 1)):
        try:
            found = _native.load().device_route(
                operation="all_reduce",
                count=1 << 20,
                dtype="float32",
                reduce_op="SUM",
                root=0,
                hosts=[list(range(ranks))],
                algorithm="",
                codec="",
                devices=shared,
                path=path,
                nccl=False,
            )
        except TypeError as error:  # NCCL is asked for, and not here
            out.append((name, str(error)))
            continue
        way = "by NCCL" if found["by_nccl"] else "by way of the host"
        out.append((name, f"{way}: {found['why']}"))
    return out


def _value_of(info: dict[str, Any], variable: str) -> str:
    return next((row[1] for row in info["variables"] if row[0] == variable), "")


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
