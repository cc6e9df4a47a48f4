"""Formats the GPU part of `info` as text: a line per GPU, per pair of GPUs, and for the network."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch_ringdist import _units
from torch_ringdist._units import format_bytes


def lines(gpus: dict[str, Any], cuda: dict[str, Any]) -> list[str]:
    """Returns the lines for a result of survey() (_devices.py) and the `cuda` entry of info()."""
    if not gpus["devices"]:
        return [gpus["problem"] or "none: the driver has no device", *_ways(cuda)]
    numbers = {one[3]: number for number, one in enumerate(cuda.get("devices", ()))}
    head = ("", "CUDA", "PCI", "PCIe", "NVLink", "NUMA", "")
    rows = [head, *(_row(one, numbers) for one in gpus["devices"])]
    out = [line.rstrip() for line in _units.table(rows)]
    out += [f"{_two(pair['devices'])}: {pair_text(pair)}" for pair in gpus["pairs"]]
    out += [gpus["problem"]] if gpus["problem"] else []
    out += _ways(cuda)
    return [*out, *_rdma(gpus)]


# Returns a line per kind of rank on how its CUDA tensors are sent.
def _ways(cuda: dict[str, Any]) -> list[str]:
    return [f"CUDA tensors of {ranks}: {way}" for ranks, way in cuda.get("ways", ())]


# Returns the table row of one GPU; `numbers` maps PCI addresses to CUDA's device numbers.
def _row(one: dict[str, Any], numbers: dict[str, int]) -> tuple[str, ...]:
    size = f", {format_bytes(one['bytes'])}" if one["bytes"] else ""
    mig = ", split by MIG" if one["mig"] else ""
    near = f"{_known(one['numa_node'])}, CPUs {one['cpus']}" if one["cpus"] else "-"
    return (
        f"GPU {one['number']}",
        _known(numbers.get(one["address"])),
        _known(one["address"]),
        _pcie(one["pcie"]),
        _nvlinks(one["nvlinks"]),
        near,
        f"{_known(one['name'])} ({_known(one['capability'])}{size}{mig})",
    )


# Returns the value as text, or "-" for None.
def _known(value: Any) -> str:
    return "-" if value is None else str(value)


def _two(numbers: list[int]) -> str:
    return f"GPU {numbers[0]} and {numbers[1]}"


def _pcie(line: dict[str, int | None]) -> str:
    """Returns text such as "5 x16". If an idle link runs below its maximum, the text is "1 of 5 x8
    of 16"."""
    if line["generation"] is None:
        return "-"

    def of(now: int | None, most: int | None) -> str:
        return f"{_known(now)} of {most}" if most is not None and most != now else _known(now)

    generation = of(line["generation"], line["most_generation"])
    return f"{generation} x{of(line['width'], line['most_width'])}"


# Returns the number of links per far end, such as "4 to GPU 1".
def _nvlinks(ends: list[Any]) -> str:
    counts = Counter("unknown" if end is None else end for end in ends)
    named = {
        end: f"GPU {end}" if isinstance(end, int) else "switches" if end == "switch" else end
        for end in counts
    }
    return ", ".join(f"{count} to {named[end]}" for end, count in counts.items()) or "-"


def pair_text(pair: dict[str, Any]) -> str:
    """Returns how two GPUs reach each other's memory, best path first, and where they meet."""
    meet = f"; they meet {pair['meet']}" if pair["meet"] else ""
    if pair["read"] is None and pair["write"] is None:
        return f"NVML does not say whether they reach each other{meet}"
    if pair["nvlink"]:
        return f"reach each other by NVLink{meet}"
    if pair["read"] and pair["write"]:
        return f"reach each other by PCIe{meet}"
    if pair["read"] or pair["write"]:
        return f"only {'read' if pair['read'] else 'write'} each other's memory by PCIe{meet}"
    return f"do not reach each other, so that NCCL goes through the host's memory{meet}"


# Returns the lines on GPUDirect RDMA and on UCX's CUDA transports.
def _rdma(gpus: dict[str, Any]) -> list[str]:
    rdma = gpus["rdma"]
    if not rdma["adapters"]:
        direct = "no: there is no RDMA adapter in /sys/class/infiniband"
    elif rdma["peermem"]:
        direct = f"by nvidia_peermem, with {', '.join(rdma['adapters'])}"
    elif rdma["open_driver"]:
        direct = f"maybe, by dma-buf of the open driver, with {', '.join(rdma['adapters'])}"
    else:
        direct = f"no, for {', '.join(rdma['adapters'])}: nvidia_peermem is not loaded"
    ucx = "has" if gpus["ucx_for_cuda"] else "has no"
    return [
        f"GPUDirect RDMA, which is NCCL's to use: {direct}",
        f"UCX {ucx} transports for CUDA; here it moves memory of the host only",
    ]
