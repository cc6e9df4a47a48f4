"""Fake of torch_ringdist._C, for tests of the Python layer without a build."""

from __future__ import annotations

import functools
import sys
from types import ModuleType, SimpleNamespace

import torch

OPTIONS = [
    ("algorithm", "str", "auto", "which schedule runs"),
    ("segment_bytes", "int", "258048", "the unit of pipelining"),
    ("peer_timeout", "float", "10", "seconds until a silent host counts as lost"),
    ("trace", "bool", "false", "record every step"),
]

_LINK = {
    "latency_ns": 200.0,
    "bytes_per_second": 4e10,
    "copied_per_second": 1e10,
    "per_message_ns": 300.0,
    "framing_bytes": 72.0,
}

INFO = {
    "version": "1.2.3",
    "torch": "2.13",
    "ucx": {"version": "1.22.0", "path": "/lib/libucp.so.0", "origin": "wheel"},
    "cuda": {"built_for": "80, 90", "state": "ok"},
    "transports": [("local", "threads of one process", "ok"), ("ucx", "network", "no interface")],
    "algorithms": [("ring", "bandwidth-optimal"), ("direct", "one round")],
    "codecs": [("none", "bytes as they are")],
    "operations": ["allreduce", "barrier"],
    "limits": [("memory", "67108864", "bytes of transport memory")],
    "variables": [
        ("RINGDIST_ALGORITHM", "ring", "auto", "which schedule runs", "set"),
        ("RINGDIST_SOCKET_IFNAME", "", "", "interfaces to use", "default"),
    ],
}


def install(monkeypatch) -> SimpleNamespace:
    """Replaces _C by the fake. Returns an object with the recorded calls."""
    import torch_ringdist
    from torch_ringdist import _native, _options

    calls = SimpleNamespace(created=[], shutdowns=0)

    def create_backend(*arguments):
        calls.created.append(arguments)
        return "backend"

    def no_signal():
        raise RuntimeError("no real-time signal is left for Python stacks")

    def shutdown():
        calls.shutdowns += 1

    native = ModuleType("torch_ringdist._C")
    native.create_backend = create_backend
    native.enable_main_thread_stack = no_signal
    native.options = lambda: OPTIONS
    native.info = lambda: INFO
    native.cuda_devices = lambda: (
        [("NVIDIA H100", "9.0", 1 << 36, "0000:17:00.0")],
        "",
    )
    native.device_route = lambda **asked: {
        "by_nccl": len(asked["hosts"][0]) <= asked["devices"],
        "why": f"{asked['hosts']} on {asked['devices']}",
    }
    native.stats = lambda: {"bytes_sent": 7}
    native.dump = lambda: "idle"
    native.shutdown = shutdown
    native.USUAL_RATE, native.USUAL_LATENCY_NS = 1e10, 30000
    native.usual_costs = lambda rate, latency: {"inside": _LINK, "between": _LINK}
    monkeypatch.setitem(sys.modules, "torch_ringdist._C", native)
    install_build_info(monkeypatch, torch.__version__)
    monkeypatch.setattr(_native, "_stops", {})
    # The package caches the loaded module, so the test gets an empty cache.
    monkeypatch.setattr(_native, "_load", functools.cache(_native._load.__wrapped__))
    # Replaces the class that is derived from the real module.
    made = _options.made_of(OPTIONS)
    for module in (torch_ringdist, _options):
        monkeypatch.setitem(vars(module), "Options", made)
    return calls


def install_build_info(monkeypatch, torch_version: str) -> None:
    """Makes the package behave as if it was built for `torch_version`."""
    build = ModuleType("torch_ringdist._build_info")
    build.TORCH_VERSION = torch_version
    build.TORCH_MAJOR_MINOR = tuple(int(part) for part in torch_version.split(".")[:2])
    monkeypatch.setitem(sys.modules, "torch_ringdist._build_info", build)
