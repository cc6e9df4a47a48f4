"""Inspects this process: info, stats and dump."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from torch_ringdist import _native


def version() -> str:
    """Returns the version of the installed package, or a text if there is none."""
    try:
        return metadata.version("torch-ringdist")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def info() -> dict[str, Any]:
    """Returns the capabilities and settings of this build and this process. Any thread may call it.

    It does not start CUDA, because children forked later could not use CUDA. ``python -m
    torch_ringdist info`` prints the result. It also starts CUDA and lists the devices that CUDA
    sees.

    Keys:

        version: version of this package.
        torch: minor version of torch that it was built for.
        ucx: version, path and origin of UCX.
        cuda: built_for (architectures) and state.
        interfaces: selected (name and address, by RINGDIST_SOCKET_IFNAME) and problem.
        gpus: GPUs of this host (docs/how-to/use-gpus.md), with problem, driver, devices, pairs,
            rdma and ucx_for_cuda.
        transports, algorithms, codecs, limits, variables: rows of text.
        operations: names of the collectives.
        costs: origin, inside and between. A group in which this process is rank 0 would plan with
            these constants.

    Raises:
        ImportError: the native module is missing or was built for another torch.
        ValueError: a RINGDIST_* variable, or the file that RINGDIST_COSTS names, is not accepted.
    """
    from torch_ringdist import _devices  # imported here to keep `import torch` cheap
    from torch_ringdist._costs import Costs

    out = _native.load().info()
    costs, origin = Costs.in_force(_value_of(out, "RINGDIST_COSTS"))
    gpus = {**_devices.survey(), "ucx_for_cuda": _devices.ucx_for_cuda(out["ucx"]["path"])}
    return {**out, "gpus": gpus, "costs": {"origin": origin, **costs.numbers()}}


def info_with_devices() -> dict[str, Any]:
    """Returns info() with the devices that CUDA sees. It starts CUDA, so it is for processes that
    do nothing else.

    The entry ``cuda`` has two more keys. ``devices`` lists name, compute capability, bytes and PCI
    address of each device; if it is empty, ``state`` has the reason. ``ways`` lists, per number of
    ranks, how their tensors are sent and why.
    """
    out = info()
    if out["cuda"]["state"] == "ok":
        devices, problem = _native.load().cuda_devices()
        ways = _ways(len(devices), _value_of(out, "RINGDIST_DEVICE_PATH")) if devices else []
        state = problem or "ok"
        out["cuda"] = {**out["cuda"], "devices": devices, "state": state, "ways": ways}
    return out


def _ways(devices: int, path: str) -> list[tuple[str, str]]:
    """Returns how CUDA tensors of ranks on this host would be sent, given the NCCL found here."""
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
        except TypeError as error:  # NCCL is required but missing here
            out.append((name, str(error)))
            continue
        way = "by NCCL" if found["by_nccl"] else "by way of the host"
        out.append((name, f"{way}: {found['why']}"))
    return out


# Returns the value of a variable in the result of info(), or "".
def _value_of(info: dict[str, Any], variable: str) -> str:
    return next((row[1] for row in info["variables"] if row[0] == variable), "")


def stats() -> dict[str, int]:
    """Returns the counters of this process since its first group, over all its groups.

    Counters of the engine are 0 before. Bytes and messages are those of the engine's transports,
    without what NCCL moves. The counters are read one by one while the engine runs, so they are not
    an atomic snapshot. Any thread may call it.

    Keys:

        bytes_sent: bytes of data that were sent, without headers.
        bytes_received: bytes of data that were received.
        messages_sent: messages with data that were sent.
        messages_received: messages with data that were received.
        control_messages: requests, grants and credits that were sent.
        messages_kept: messages that came before their step could use them, and were copied.
        ops_completed: operations that succeeded.
        ops_failed: operations that ended with an error.
        shared_tensors: tensors that are in shared memory now.
        shared_bytes: bytes of their memory now.
        bytes_read_in_place: bytes of these tensors that other ranks have read without a copy.

    Raises:
        ImportError: the native module is missing or was built for another torch.
    """
    return _native.load().stats()


def dump() -> str:
    """Returns the state of this process as text: operations in flight, steps, peers and credits.

    Any thread may call it, also while another is blocked in an operation. For another process, even
    one that hangs, use ``python -m torch_ringdist dump PID``.

    Raises:
        ImportError: the native module is missing or was built for another torch.
    """
    return _native.load().dump()
