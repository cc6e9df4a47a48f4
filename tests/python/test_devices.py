"""GPUs of a host as `info` shows them, with a fake NVML and a fake /sys."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import torch_ringdist
from torch_ringdist import _devices, _devices_text
from torch_ringdist._nvml import Nvml, NvmlError

SOURCE = Path(__file__).parent / "support" / "fake_nvml.c"
PACKAGE_PARENT = str(Path(torch_ringdist.__file__).resolve().parents[1])

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def nvml(tmp_path_factory):
    """Returns a function that compiles an NVML with macros and returns its path."""
    made: dict[tuple[str, ...], str] = {}

    def make(*macros: str) -> str:
        if macros not in made:
            out = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
            flags = ["-shared", "-fPIC", "-Wall", "-Werror", *(f"-D{one}" for one in macros)]
            subprocess.run(["cc", *flags, "-o", str(out), str(SOURCE)], check=True)
            made[macros] = str(out)
        return made[macros]

    return make


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Makes a machine of two nodes with GPU 0 at the first and GPU 1 at the second. For GPU 2
    there is no entry."""
    for address, node, cpus in (("0000:17:00.0", 0, "0-15"), ("0000:3b:00.0", 1, "16-31")):
        folder = tmp_path / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{node}\n")
        (folder / "local_cpulist").write_text(f"{cpus}\n")
    return tmp_path


def text(gpus: dict, cuda: dict | None = None) -> str:
    return "\n".join(_devices_text.lines({"ucx_for_cuda": None, **gpus}, cuda or {}))


def test_devices_and_what_they_do_not_say(nvml, root: Path):
    out = _devices.survey(nvml(), root)
    assert out["problem"] == "" and out["driver"] == "580.159.03"
    first, second, third = out["devices"]
    assert first == {
        "number": 0,
        "name": "NVIDIA H100",
        "uuid": "GPU-0",
        "bytes": 80 << 30,
        "capability": "9.0",
        "address": "0000:17:00.0",
        "pcie": {"generation": 1, "width": 16, "most_generation": 5, "most_width": 16},
        "nvlinks": [1, 1],
        "mig": False,
        "numa_node": 0,
        "cpus": "0-15",
    }
    assert second["nvlinks"] == [0, 0] and second["numa_node"] == 1
    assert third["name"] == "NVIDIA T4" and third["nvlinks"] == []
    for key in ("bytes", "mig", "numa_node", "cpus"):
        assert third[key] is None
    assert set(third["pcie"].values()) == {None}


def test_pairs(nvml, root: Path):
    linked, silent, apart = _devices.survey(nvml(), root)["pairs"]
    assert linked == {
        "devices": [0, 1],
        "meet": "at one PCIe switch (PIX)",
        "read": True,
        "write": True,
        "nvlink": True,
        "pcie": True,
    }
    assert silent["devices"] == [0, 2]
    assert [silent[key] for key in ("meet", "read", "write", "nvlink", "pcie")] == [None] * 5
    assert apart["devices"] == [1, 2]
    assert (apart["read"], apart["write"], apart["nvlink"]) == (True, False, False)


def test_what_is_said_of_pairs(nvml, root: Path):
    linked, silent, apart = _devices.survey(nvml(), root)["pairs"]
    says = _devices_text.pair_text
    assert says(linked) == "reach each other by NVLink; they meet at one PCIe switch (PIX)"
    assert says(silent) == "NVML does not say whether they reach each other"
    assert says(apart) == (
        "only read each other's memory by PCIe; they meet across NUMA nodes (SYS)"
    )
    plain = {**linked, "nvlink": False}
    assert says(plain).startswith("reach each other by PCIe;")
    assert "do not reach each other" in says({**plain, "read": False, "write": False})


def test_links_to_switches(nvml, root: Path):
    assert _devices.survey(nvml("SWITCHED"), root)["devices"][0]["nvlinks"] == ["switch", "switch"]


def test_an_old_driver_lacks_answers(nvml, root: Path):
    first = _devices.survey(nvml("OLD"), root)["devices"][0]
    assert first["mig"] is None and first["nvlinks"] == [1, 1]


def test_a_device_that_is_split(nvml, root: Path):
    out = _devices.survey(nvml("SPLIT"), root)
    assert [one["mig"] for one in out["devices"]] == [True, False, None]
    assert "split by MIG" in text(out).splitlines()[1]


def test_no_library(root: Path):
    out = _devices.survey("libnvidia-ml.so.none", root)
    assert out["problem"].startswith("no NVML: libnvidia-ml.so.none")
    assert (out["devices"], out["pairs"]) == ([], [])
    assert text(out) == out["problem"]


def test_no_driver(nvml, root: Path):
    library = nvml("NO_DRIVER")
    assert _devices.survey(library, root)["problem"] == f"no NVML: {library}: Driver Not Loaded"


def test_it_is_shut_down(nvml, root: Path):
    library = nvml()
    _devices.survey(library, root)
    assert ctypes.CDLL(library).fake_started() == 0


def test_a_device_that_is_not_there(nvml):
    made = Nvml(nvml())
    with pytest.raises(NvmlError, match="NVML's device 3: Not Supported"):
        type(made.devices()[0])(made, 3)
    made.close()


def test_text(nvml, root: Path):
    cuda = {"devices": [("NVIDIA H100", "9.0", 80 << 30, "0000:3b:00.0")]}
    lines = text(_devices.survey(nvml(), root), cuda).splitlines()
    assert lines[0].split() == ["CUDA", "PCI", "PCIe", "NVLink", "NUMA"]
    assert [line.split("  ")[0] for line in lines[1:4]] == ["GPU 0", "GPU 1", "GPU 2"]
    assert (
        "0000:17:00.0  1 of 5 x16  2 to GPU 1  0, CPUs 0-15   NVIDIA H100 (9.0, 80 GiB)" in lines[1]
    )
    assert lines[1].split()[2] == "-", "CUDA does not see it"
    assert lines[2].split()[2] == "0" and "  5 x16 " in lines[2]
    assert lines[3].split()[2:6] == ["-", "0000:5f:00.0", "-", "-"]
    assert lines[4] == "GPU 0 and 1: reach each other by NVLink; they meet at one PCIe switch (PIX)"


@pytest.mark.parametrize(
    ("adapters", "peermem", "version", "words"),
    [
        ((), True, "", "no: there is no RDMA adapter"),
        (("mlx5_1", "mlx5_0"), True, "", "by nvidia_peermem, with mlx5_0, mlx5_1"),
        (
            ("mlx5_0",),
            False,
            "NVRM: NVIDIA UNIX x86_64 Kernel Module  580",
            "no, for mlx5_0",
        ),
        (("mlx5_0",), False, "NVRM version: NVIDIA UNIX Open Kernel Module", "maybe, by dma-buf"),
    ],
)
def test_gpudirect_rdma(nvml, root: Path, adapters, peermem: bool, version: str, words: str):
    for one in adapters:
        (root / "sys/class/infiniband" / one).mkdir(parents=True)
    if peermem:
        (root / "sys/module/nvidia_peermem").mkdir(parents=True)
    if version:
        (root / "proc/driver/nvidia").mkdir(parents=True)
        (root / "proc/driver/nvidia/version").write_text(version)
    assert f"GPUDirect RDMA, which is NCCL's to use: {words}" in text(_devices.survey(nvml(), root))


def test_transports_of_ucx_for_cuda(tmp_path: Path):
    path = tmp_path / "lib" / "libucp.so.0"
    assert _devices.ucx_for_cuda("") is None
    assert _devices.ucx_for_cuda(str(path)) is None
    module = path.parent / "ucx" / "libuct_cuda.so.0"
    module.parent.mkdir(parents=True)
    module.touch()
    assert _devices.ucx_for_cuda(str(path)) == str(module)


def test_the_command_shows_them(nvml):
    """Runs a process that finds the fake library in place of the driver's."""
    folder = str(Path(nvml()).parent)
    done = subprocess.run(
        [sys.executable, "-m", "torch_ringdist", "info", "--json"],
        env={**os.environ, "PYTHONPATH": PACKAGE_PARENT, "LD_LIBRARY_PATH": folder},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    gpus = json.loads(done.stdout)["gpus"]
    assert [one["uuid"] for one in gpus["devices"]] == ["GPU-0", "GPU-1", "GPU-2"]
    assert gpus["ucx_for_cuda"] is None or "libuct_cuda" in gpus["ucx_for_cuda"]
