"""Reads device data through NVML, the library of NVIDIA's driver, without starting CUDA.

It uses only ctypes. The few structures and functions that it needs have not changed since driver
384, and every machine with a driver has the library. Constants and layouts are those of nvml.h:
https://docs.nvidia.com/deploy/nvml-api/

If a device reports "not supported", or the driver is too old for a function, the result is None.
One thread at a time.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
MOST_LINKS = 36  # NVML_NVLINK_MAX_LINKS
SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH
READ, WRITE, NVLINK, _ATOMICS, PCIE = range(5)  # NVML_P2P_CAPS_INDEX_*

_TEXT = 96  # longer than any text of a device


class NvmlError(Exception):
    """NVML is missing or does not work here; the message has the reason."""


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
    """The loaded library. It is initialized by the constructor and shut down by close().

    Raises:
        NvmlError: the library or the driver is missing.
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
        """Shuts the library down. Its devices must not be used afterwards."""
        self._call("nvmlShutdown")

    def driver(self) -> str:
        """Returns the version of the driver, such as "580.159.03"."""
        return self._text("nvmlSystemGetDriverVersion") or ""

    def devices(self) -> list[Device]:
        """Returns all devices in the order of their PCI addresses; CUDA_VISIBLE_DEVICES has no
        effect.

        Raises:
            NvmlError: NVML cannot count the devices.
        """
        count = c_uint()
        if code := self._call("nvmlDeviceGetCount_v2", byref(count)):
            raise NvmlError(f"NVML counts no devices: {self._words(code)}")
        return [Device(self, number) for number in range(count.value)]

    def _call(self, name: str, *arguments: Any) -> int:
        """Calls a function of NVML and returns its code; 0 is success."""
        function = getattr(self._library, name, None)
        return 13 if function is None else int(function(*arguments))  # FUNCTION_NOT_FOUND

    # Returns NVML's text for an error code.
    def _words(self, code: int) -> str:
        words = self._library.nvmlErrorString
        words.restype = ctypes.c_char_p
        return str((words(code) or b"").decode(errors="replace")) or f"error {code}"

    # Returns the text that a function of NVML writes, or None if it fails.
    def _text(self, name: str, *first: Any) -> str | None:
        out = ctypes.create_string_buffer(_TEXT)
        failed = self._call(name, *first, out, c_uint(_TEXT))
        return None if failed else out.value.decode(errors="replace")


class Device:
    """One GPU of NVML. A GPU that is split into MIG instances counts as one device."""

    def __init__(self, nvml: Nvml, number: int) -> None:
        self._nvml = nvml
        self._handle = c_void_p()
        if code := nvml._call("nvmlDeviceGetHandleByIndex_v2", c_uint(number), byref(self._handle)):
            raise NvmlError(f"NVML's device {number}: {nvml._words(code)}")

    # Returns the number that a function of NVML writes, or None if it fails.
    def _number(self, name: str, *between: Any, of: type = c_uint) -> int | None:
        out = of()
        failed = self._nvml._call(name, self._handle, *between, byref(out))
        return None if failed else int(out.value)

    def name(self) -> str | None:
        """Returns the product name, such as "NVIDIA H100 80GB HBM3"."""
        return self._nvml._text("nvmlDeviceGetName", self._handle)

    def uuid(self) -> str | None:
        """Returns the id that CUDA_VISIBLE_DEVICES accepts, such as "GPU-6f1d..."."""
        return self._nvml._text("nvmlDeviceGetUUID", self._handle)

    def bytes(self) -> int | None:
        """Returns the total memory in bytes."""
        out = _Memory()
        failed = self._nvml._call("nvmlDeviceGetMemoryInfo", self._handle, byref(out))
        return None if failed else int(out.total)

    def capability(self) -> str | None:
        """Returns the compute capability, such as "9.0"."""
        major, minor = c_int(), c_int()
        failed = self._nvml._call(
            "nvmlDeviceGetCudaComputeCapability", self._handle, byref(major), byref(minor)
        )
        return None if failed else f"{major.value}.{minor.value}"

    def address(self) -> str | None:
        """Returns the PCI address in the format of the kernel and CUDA: "0000:17:00.0"."""
        return self._pci("nvmlDeviceGetPciInfo_v3")

    # Returns the PCI address that a function of NVML writes, or None if it fails.
    def _pci(self, name: str, *between: Any) -> str | None:
        out = _PciInfo()
        failed = self._nvml._call(name, self._handle, *between, byref(out))
        return None if failed else f"{out.domain:04x}:{out.bus:02x}:{out.device:02x}.0"

    def pcie(self) -> dict[str, int | None]:
        """Returns generation and width of the PCIe link, present and maximum. An idle link reports
        less."""
        return {
            "generation": self._number("nvmlDeviceGetCurrPcieLinkGeneration"),
            "width": self._number("nvmlDeviceGetCurrPcieLinkWidth"),
            "most_generation": self._number("nvmlDeviceGetMaxPcieLinkGeneration"),
            "most_width": self._number("nvmlDeviceGetMaxPcieLinkWidth"),
        }

    def mig(self) -> bool | None:
        """Returns True if the GPU is split into MIG instances."""
        now, later = c_uint(), c_uint()
        failed = self._nvml._call("nvmlDeviceGetMigMode", self._handle, byref(now), byref(later))
        return None if failed else now.value == 1

    def nvlinks(self) -> dict[int, str | None]:
        """Returns the far end of each active link: a PCI address, "switch", or None if it cannot be
        read."""
        up = [
            link
            for link in range(MOST_LINKS)
            if self._number("nvmlDeviceGetNvLinkState", c_uint(link)) == 1
        ]
        return {link: self._far_end(link) for link in up}

    # Returns the far end of one link, as nvlinks() does.
    def _far_end(self, link: int) -> str | None:
        kind = self._number("nvmlDeviceGetNvLinkRemoteDeviceType", c_uint(link))
        if kind == SWITCH:
            return "switch"
        return self._pci("nvmlDeviceGetNvLinkRemotePciInfo_v2", c_uint(link))

    def p2p(self, other: Device, how: int) -> bool | None:
        """Returns True if kernels and copies of this device reach the other's memory by `how`.

        `how` is READ, WRITE, NVLINK or PCIE.
        """
        status = self._number("nvmlDeviceGetP2PStatus", other._handle, c_int(how))
        return None if status is None else status == 0

    def common_ancestor(self, other: Device) -> int | None:
        """Returns the level at which the two devices meet on the PCI bus (NVML_TOPOLOGY_*)."""
        return self._number("nvmlDeviceGetTopologyCommonAncestor", other._handle)
