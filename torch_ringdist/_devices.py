"""The NVIDIA GPUs of this host, and what lies between them: links, PCI bus, NUMA nodes, network.

Read from NVML, /sys and /proc: no CUDA is started. All is as the host has it, whatever
CUDA_VISIBLE_DEVICES says. What is not known is None.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from torch_ringdist import _nvml
from torch_ringdist._nvml import Device, Nvml, NvmlError

# NVML_TOPOLOGY_*, and what nvidia-smi's `topo -m` calls it.
_MEETINGS = {
    0: "on one board",
    10: "at one PCIe switch (PIX)",
    20: "across PCIe switches (PXB)",
    30: "at the host's PCIe root (PHB)",
    40: "inside a NUMA node (NODE)",
    50: "across NUMA nodes (SYS)",
}


def survey(library: str = _nvml.LIBRARY, root: Path = Path("/")) -> dict[str, Any]:
    """Keys: problem (why nothing is known of devices; "" where it is), driver (its version),
    devices, pairs (of each two), rdma. `root`: where sys and proc are.

    A device: number (NVML's), name, uuid, bytes, capability, address (PCI), pcie (generation,
    width, most_generation, most_width), nvlinks (where each that is up leads: the number of a
    device, "switch", a PCI address), mig, numa_node, cpus (near it, as "0-15").
    A pair: devices (two numbers), meet (where, on the PCI bus), read, write, nvlink, pcie (whether
    each reaches the other so).
    rdma: see there.

    One thread at a time.
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
        "numa_node": int(node) if node.isdecimal() else None,  # -1: the machine has but one
        "cpus": _read(bus / "local_cpulist") or None,
    }


def _name_links(devices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    numbers = {one["address"]: one["number"] for one in devices}
    for one in devices:
        one["nvlinks"] = [numbers.get(end, end) for end in one["nvlinks"]]
    return devices


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
    """What network adapters need to read a GPU's memory, which is NCCL's to use.

    Keys: adapters (RDMA, as "mlx5_0"); peermem (the module nvidia_peermem is loaded); open_driver
    (the driver's modules are the open ones, whose memory goes by dma-buf; None: there are none).
    """
    version = _read(root / "proc/driver/nvidia/version")
    adapters = root / "sys/class/infiniband"
    return {
        "adapters": sorted(one.name for one in adapters.iterdir()) if adapters.is_dir() else [],
        "peermem": (root / "sys/module/nvidia_peermem").is_dir(),
        "open_driver": "Open Kernel Module" in version if version else None,
    }


def ucx_for_cuda(ucx_path: str) -> str | None:
    """UCX's module of transports for memory of GPUs, beside that libucp.so; None: it has none.

    It is looked for and not asked: loading it would load CUDA's driver.
    """
    found = sorted(Path(ucx_path).parent.glob("ucx/libuct_cuda.so*")) if ucx_path else []
    return str(found[0]) if found else None


def _read(path: Path) -> str:
    """Of a file of the kernel's; "" where it is not there."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
