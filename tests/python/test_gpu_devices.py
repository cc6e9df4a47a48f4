"""Reports of NVML, /sys and CUDA about the GPUs here, and the affinity of a rank to its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.gpu import my_device, needs_gpu
from support.rank import new_group

import torch_ringdist
from torch_ringdist import _native

pytestmark = needs_gpu
PACKAGE_PARENT = str(Path(torch_ringdist.__file__).resolve().parents[1])


def command(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "torch_ringdist", *arguments],
        env={**os.environ, "PYTHONPATH": PACKAGE_PARENT},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nvml_knows_what_cuda_sees():
    info = json.loads(command("info", "--json"))
    assert info["gpus"]["problem"] == "" and info["gpus"]["driver"]
    found = {one["address"]: one for one in info["gpus"]["devices"]}
    for name, capability, size, address in info["cuda"]["devices"]:
        one = found[address]
        assert one["capability"] == capability
        assert one["mig"] or one["name"] == name
        assert one["mig"] or one["bytes"] is None or size <= one["bytes"] <= 1.2 * size
    assert len(info["cuda"]["ways"]) == 2
    text = command("info")
    for one in found.values():
        assert f"GPU {one['number']}" in text and one["address"] in text


def test_info_starts_no_cuda():
    """Processes that have started CUDA cannot use it in forked children."""
    code = (
        "import os, torch, torch_ringdist\n"
        "assert torch_ringdist.info()['gpus']['devices']\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    torch.ones(1, device='cuda')\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": PACKAGE_PARENT},
        check=True,
        timeout=120,
    )


def _cpus(text: str) -> set[int]:
    ends = [part.split("-") for part in text.split(",") if part]
    return {cpu for part in ends for cpu in range(int(part[0]), int(part[-1]) + 1)}


def _lane() -> int:
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == "ringdist-lane":
            return int(task.name)
    raise AssertionError("there is no lane")


def _stays_near() -> None:
    device = my_device()
    address = _native.load().cuda_devices()[0][device.index][3]
    near = _cpus(Path(f"/sys/bus/pci/devices/{address}/local_cpulist").read_text().strip())
    before = os.sched_getaffinity(0)
    group = new_group(pg_options=torch_ringdist.Options(device_path="host"))
    for count in (16, 1 << 20):  # by an op of the host, and by mailboxes
        tensor = torch.ones(count, device=device)
        dist.all_reduce(tensor, group=group)
        assert tensor.eq(dist.get_world_size()).all()
    assert os.sched_getaffinity(0) == before, "the caller's thread was moved"
    assert os.sched_getaffinity(_lane()) == (near & before or before)
    dist.destroy_process_group(group)


@pytest.mark.parametrize("size", [1, 2])
def test_the_lane_stays_near_its_gpu(pools, size: int):
    pools(size).run(_stays_near)
