"""The library for NVIDIA GPUs, with and without devices, must not disturb anything else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import torch_ringdist

LIBRARY = Path(torch_ringdist.__file__).parent / "libringdist_cuda.so"
NOT_BUILT = "libringdist_cuda.so is not built: `make cuda`, where nvcc is"


def mapped_after(code: str) -> bool:
    """Returns True if a process that runs `code` has mapped the library."""
    look = f"{code}\nprint('libringdist_cuda' in open('/proc/self/maps').read())"
    out = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=True
    )
    return out.stdout.strip() == "True"


def test_info_says_what_there_is() -> None:
    cuda = torch_ringdist.info()["cuda"]
    if LIBRARY.exists():
        # CI builds for one architecture, to save time.
        built_for = os.environ.get("RINGDIST_CUDA_ARCHITECTURES", "80 90 100").split()
        assert cuda == {"built_for": ", ".join(built_for), "state": "ok"}
    else:
        assert cuda["built_for"] == ""
        assert "make cuda" in cuda["state"]


@pytest.mark.skipif(not LIBRARY.exists(), reason=NOT_BUILT)
def test_the_command_names_devices_or_says_why_not() -> None:
    command = [sys.executable, "-m", "torch_ringdist", "info", "--json"]
    out = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    cuda = json.loads(out.stdout)["cuda"]
    assert bool(cuda["devices"]) == (cuda["state"] == "ok")
    assert len(cuda["ways"]) == (2 if cuda["devices"] else 0)
    assert all(len(one) == 4 for one in cuda["devices"])
    assert cuda["state"] == "ok" or cuda["state"].startswith(("no device: ", "device "))


def test_a_job_on_cpus_does_not_load_it() -> None:
    train = (
        "import torch, torch.distributed as dist, torch_ringdist\n"
        "store = dist.HashStore()\n"
        "dist.init_process_group('ringdist', store=store, rank=0, world_size=1)\n"
        "dist.all_reduce(torch.ones(8))\n"
        "dist.destroy_process_group()"
    )
    assert not mapped_after(train)


@pytest.mark.skipif(not LIBRARY.exists(), reason=NOT_BUILT)
def test_asking_for_devices_loads_it() -> None:
    assert mapped_after("import torch_ringdist; torch_ringdist.info()")


@pytest.mark.skipif(not LIBRARY.exists(), reason=NOT_BUILT)
def test_it_exports_no_more_than_it_says() -> None:
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", str(LIBRARY)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    ours = {line.split()[-1] for line in symbols if "ringdist" in line}
    assert ours == {"ringdist_cuda_interface", "ringdist_cuda_library"}


@pytest.mark.skipif(not LIBRARY.exists(), reason=NOT_BUILT)
def test_it_needs_no_library_of_cuda() -> None:
    needed = subprocess.run(
        ["objdump", "-p", str(LIBRARY)], capture_output=True, text=True, check=True
    ).stdout
    libraries = {line.split()[1] for line in needed.splitlines() if "NEEDED" in line}
    assert {name.split(".so")[0] for name in libraries} <= {
        "libstdc++",
        "libgcc_s",
        "libc",
        "libm",
        "ld-linux-x86-64",
        "ld-linux-aarch64",
    }
