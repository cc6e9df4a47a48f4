"""NVML, the library of NVIDIA's driver that tells of its devices; it starts no CUDA.

By ctypes alone: what is asked here are two structures and a dozen functions, which have not changed
since driver 384, and a machine with a driver has the library. Constants and layouts are those of
nvml.h: https://docs.nvidia.com/deploy/nvml-api/

A device answers "not supported" to what it does not have, and a driver lacks functions that are
younger than it is: such answers are None. One thread at a time.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
MOST_LINKS = 36  # NVML_NVLINK_MAX_LINKS
SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH
READ, WRITE, NVLINK, _ATOMICS, PCIE = range(5)  # NVML_P2P_CAPS_INDEX_*

_TEXT = 96  # more than any text of a device takes


class NvmlError(Exception):
    """There is no NVML, or it does not work here; says why."""


class _PciInfo(ctypes.Structure):
    _fields_ = (
        ("old_address", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("ids", c_uint * 2),
        ("address", c_char * 32),
    )


class _Memory(ctypes.Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class Nvml:
    """The library, from here to close().

    Raises:
        NvmlError: it is not there, or there is no driver.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            missing = "No such file" in str(error)
            problem = f"{library}, of NVIDIA's driver, is not installed" if missing else error
            raise NvmlError(f"no NVML: {problem}") from None
        if code := self._call("nvmlInit_v2"):
            raise NvmlError(f"no NVML: {library}: {self._words(code)}")

    def close(self) -> None:
        """Nothing is asked any more."""
        self._call("nvmlShutdown")

    def driver(self) -> str:
        """Its version, as "580.159.03"."""
        return self._text("nvmlSystemGetDriverVersion") or ""

    def devices(self) -> list[Device]:
        """In the order of their PCI addresses, whatever CUDA_VISIBLE_DEVICES says."""
        count = c_uint()
        if code := self._call("nvmlDeviceGetCount_v2", byref(count)):
            raise NvmlError(f"NVML counts no devices: {self._words(code)}")
        return [Device(self, number) for number in range(count.value)]

    def _call(self, name: str, *arguments: Any) -> int:
        """NVML's code: 0 is success."""
        function = getattr(self._library, name, None)
        return 13 if function is None else int(function(*arguments))  # FUNCTION_NOT_FOUND

    def _words(self, code: int) -> str:
        words = self._library.nvmlErrorString
        words.restype = ctypes.c_char_p
        return str((words(code) or b"").decode(errors="replace")) or f"error {code}"

    def _text(self, name: str, *first: Any) -> str | None:
        out = ctypes.create_string_buffer(_TEXT)
        failed = self._call(name, *first, out, c_uint(_TEXT))
        return None if failed else out.value.decode(errors="replace")


class Device:
    """One device of it: a whole GPU, also where that is split into MIG instances."""

    def __init__(self, nvml: Nvml, number: int) -> None:
        self._nvml = nvml
        self._handle = c_void_p()
        if code := nvml._call("nvmlDeviceGetHandleByIndex_v2", c_uint(number), byref(self._handle)):
            raise NvmlError(f"NVML's device {number}: {nvml._words(code)}")

    def _number(self, name: str, *between: Any, of: type = c_uint) -> int | None:
        out = of()
        failed = self._nvml._call(name, self._handle, *between, byref(out))
        return None if failed else int(out.value)

    def name(self) -> str | None:
        """As "NVIDIA H100 80GB HBM3"."""
        return self._nvml._text("nvmlDeviceGetName", self._handle)

    def uuid(self) -> str | None:
        """As "GPU-6f1d...", by which CUDA_VISIBLE_DEVICES may name it."""
        return self._nvml._text("nvmlDeviceGetUUID", self._handle)

    def bytes(self) -> int | None:
        """Of its memory."""
        out = _Memory()
        failed = self._nvml._call("nvmlDeviceGetMemoryInfo", self._handle, byref(out))
        return None if failed else int(out.total)

    def capability(self) -> str | None:
        """As "9.0"."""
        major, minor = c_int(), c_int()
        failed = self._nvml._call(
            "nvmlDeviceGetCudaComputeCapability", self._handle, byref(major), byref(minor)
        )
        return None if failed else f"{major.value}.{minor.value}"

    def address(self) -> str | None:
        """On the PCI bus, as the kernel and CUDA write it: "0000:17:00.0"."""
        return self._pci("nvmlDeviceGetPciInfo_v3")

    def _pci(self, name: str, *between: Any) -> str | None:
        out = _PciInfo()
        failed = self._nvml._call(name, self._handle, *between, byref(out))
        return None if failed else f"{out.domain:04x}:{out.bus:02x}:{out.device:02x}.0"

    def pcie(self) -> dict[str, int | None]:
        """Its line: generation and lanes, now - fewer while it idles - and at most."""
        return {
            "generation": self._number("nvmlDeviceGetCurrPcieLinkGeneration"),
            "width": self._number("nvmlDeviceGetCurrPcieLinkWidth"),
            "most_generation": self._number("nvmlDeviceGetMaxPcieLinkGeneration"),
            "most_width": self._number("nvmlDeviceGetMaxPcieLinkWidth"),
        }

    def mig(self) -> bool | None:
        """It is split into instances."""
        now, later = c_uint(), c_uint()
        failed = self._nvml._call("nvmlDeviceGetMigMode", self._handle, byref(now), byref(later))
        return None if failed else now.value == 1

    def nvlinks(self) -> dict[int, str | None]:
        """Those that are up, and where each leads: a PCI address, "switch", or None: not known."""
        up = [
            link
            for link in range(MOST_LINKS)
            if self._number("nvmlDeviceGetNvLinkState", c_uint(link)) == 1
        ]
        return {link: self._far_end(link) for link in up}

    def _far_end(self, link: int) -> str | None:
        kind = self._number("nvmlDeviceGetNvLinkRemoteDeviceType", c_uint(link))
        if kind == SWITCH:
            return "switch"
        return self._pci("nvmlDeviceGetNvLinkRemotePciInfo_v2", c_uint(link))

    def p2p(self, other: Device, how: int) -> bool | None:
        """Whether its kernels and copies reach the other's memory so: READ, WRITE, NVLINK, PCIE."""
        status = self._number("nvmlDeviceGetP2PStatus", other._handle, c_int(how))
        return None if status is None else status == 0

    def common_ancestor(self, other: Device) -> int | None:
        """Where the two meet on the PCI bus: NVML_TOPOLOGY_*."""
        return self._number("nvmlDeviceGetTopologyCommonAncestor", other._handle)
