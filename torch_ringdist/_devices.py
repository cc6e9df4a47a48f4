"""Surveys the NVIDIA GPUs of this host and their links, PCI bus, NUMA nodes and network adapters.

The information comes from NVML, /sys and /proc, so CUDA is not started. It describes the whole
host; CUDA_VISIBLE_DEVICES has no effect. A value that cannot be found is None.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from torch_ringdist import _nvml
from torch_ringdist._nvml import Device, Nvml, NvmlError

# NVML_TOPOLOGY_* levels with the names that `nvidia-smi topo -m` uses.
_MEETINGS = {
    0: "on one board",
    10: "at one PCIe switch (PIX)",
    20: "across PCIe switches (PXB)",
    30: "at the host's PCIe root (PHB)",
    40: "inside a NUMA node (NODE)",
    50: "across NUMA nodes (SYS)",
}


def survey(library: str = _nvml.LIBRARY, root: Path = Path("/")) -> dict[str, Any]:
    """Returns a dict that describes the GPUs of this host. One thread at a time.

    Args:
        library: the NVML library to load.
        root: the folder that contains sys and proc.

    Keys:

        problem: the reason why devices could not be read, or "".
        driver: the version of the driver.
        devices: a dict per device, described below.
        pairs: a dict per two devices, described below.
        rdma: the result of rdma().

    A device has number (NVML's), name, uuid, bytes, capability, address (PCI), mig and numa_node.
    Its cpus are the nearby CPUs, such as "0-15". Its pcie has generation, width, most_generation
    and most_width. Its nvlinks are the far ends of the active links. Each is a device number,
    "switch" or a PCI address.

    A pair has devices (two numbers), meet (their common point on the PCI bus), read, write, nvlink
    and pcie. The last four are True if each device can reach the other that way.
    """
    out: dict[str, Any] = {"problem": "", "driver": "", "devices": [], "pairs": []}
    out["rdma"] = rdma(root)
    try:
        nvml = Nvml(library)
    except NvmlError as error:
        return {**out, "problem": str(error)}
    try:
        found = nvml.devices()
        out["driver"] = nvml.driver()
        out["devices"] = _name_links([_device(n, one, root) for n, one in enumerate(found)])
        out["pairs"] = [
            _pair((a, found[a]), (b, found[b]))
            for a, b in itertools.combinations(range(len(found)), 2)
        ]
    except NvmlError as error:
        out["problem"] = str(error)
    finally:
        nvml.close()
    return out


# Returns the entry of one device in survey().
def _device(number: int, device: Device, root: Path) -> dict[str, Any]:
    address = device.address()
    bus = root / "sys/bus/pci/devices" / str(address)
    node = _read(bus / "numa_node")
    return {
        "number": number,
        "name": device.name(),
        "uuid": device.uuid(),
        "bytes": device.bytes(),
        "capability": device.capability(),
        "address": address,
        "pcie": device.pcie(),
        "nvlinks": list(device.nvlinks().values()),
        "mig": device.mig(),
        "numa_node": int(node) if node.isdecimal() else None,  # -1 on a machine with one node
        "cpus": _read(bus / "local_cpulist") or None,
    }


# Replaces the PCI addresses in `nvlinks` that belong to a device of the list by its number.
def _name_links(devices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    numbers = {one["address"]: one["number"] for one in devices}
    for one in devices:
        one["nvlinks"] = [numbers.get(end, end) for end in one["nvlinks"]]
    return devices


# Returns the entry of two devices in survey().
def _pair(first: tuple[int, Device], second: tuple[int, Device]) -> dict[str, Any]:
    (a, one), (b, other) = first, second

    def reaches(how: int) -> bool | None:
        there, back = one.p2p(other, how), other.p2p(one, how)
        return None if there is None or back is None else there and back

    level = one.common_ancestor(other)
    return {
        "devices": [a, b],
        "meet": None if level is None else _MEETINGS.get(level, f"level {level}"),
        "read": reaches(_nvml.READ),
        "write": reaches(_nvml.WRITE),
        "nvlink": reaches(_nvml.NVLINK),
        "pcie": reaches(_nvml.PCIE),
    }


def rdma(root: Path = Path("/")) -> dict[str, Any]:
    """Returns the state of GPUDirect RDMA, by which network adapters read GPU memory. Only NCCL
    uses it.

    Keys:

        adapters: names of the RDMA adapters, such as "mlx5_0".
        peermem: True if the kernel module nvidia_peermem is loaded.
        open_driver: True if the driver is the open one, which exports memory by dma-buf. None if no
            driver is loaded.
    """
    version = _read(root / "proc/driver/nvidia/version")
    adapters = root / "sys/class/infiniband"
    return {
        "adapters": sorted(one.name for one in adapters.iterdir()) if adapters.is_dir() else [],
        "peermem": (root / "sys/module/nvidia_peermem").is_dir(),
        "open_driver": "Open Kernel Module" in version if version else None,
    }


def ucx_for_cuda(ucx_path: str) -> str | None:
    """Returns the path of UCX's CUDA transports next to that libucp.so, or None if UCX has none.

    The function only looks for the file. Loading it would load the CUDA driver.
    """
    found = sorted(Path(ucx_path).parent.glob("ucx/libuct_cuda.so*")) if ucx_path else []
    return str(found[0]) if found else None


def _read(path: Path) -> str:
    """Returns the stripped text of a file of the kernel, or "" if it does not exist."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
