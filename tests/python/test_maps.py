"""Files that a process has mapped: none of the project's, and no UCX, before they are needed."""

from __future__ import annotations

import os

import pytest
from support.pool import run_interpreters

# Selects files by their own name, because .venv may lie below a folder torch-ringdist/.
LIST = """
import os
def maps():
    with open("/proc/self/maps") as lines:
        return {line.split(maxsplit=5)[5].strip() for line in lines if len(line.split()) > 5}
def mapped(library):
    return sorted(path for path in maps() if os.path.basename(path).startswith(library))
"""


def test_import_of_torch_maps_nothing_of_ours():
    code = f"""{LIST}
import torch, torch.distributed as dist
print(dist.is_backend_available("ringdist"))
import torch_ringdist
ours = os.path.realpath(os.path.dirname(torch_ringdist.__file__)) + os.sep
print([path for path in maps() if path.startswith(ours)], mapped("libuc"))
"""
    # The entry point of the installed package makes torch import it.
    [done] = run_interpreters(1, code, fresh=True, TORCH_DEVICE_BACKEND_AUTOLOAD="1")
    assert done.stdout.split("\n")[:2] == ["True", "[] []"], done


@pytest.mark.default_of("RINGDIST_TRANSPORT", reason="by itself a host needs no UCX")
def test_only_a_group_that_needs_it_maps_ucx_that_of_the_wheel_once():
    code = f"""{LIST}
import sys, torch, torch.distributed as dist
rank, size, port = map(int, sys.argv[1:])
store = dist.TCPStore("127.0.0.1", port, is_master=False)
dist.init_process_group("ringdist", store=store, rank=rank, world_size=size)
dist.all_reduce(torch.ones(3))
print(len(mapped("libuc")))
import torch_ringdist
group = dist.new_group(pg_options=torch_ringdist.Options(transport="ucx"))
dist.all_reduce(torch.ones(3), group=group)
dist.all_reduce(torch.ones(3))
import libucx
paths = [os.path.realpath(path) for path in mapped("libucp.so")]
print(len(paths), os.path.commonpath([os.path.dirname(libucx.__file__), *paths]) == os.path.dirname(
    os.path.realpath(libucx.__file__)))
dist.barrier()
dist.destroy_process_group()
"""
    variables = {"RINGDIST_UCX": "wheel"} if "RINGDIST_UCX" in os.environ else {}
    for done in run_interpreters(2, code, **variables):
        assert done.returncode == 0 and done.stdout.split() == ["0", "1", "True"], done
