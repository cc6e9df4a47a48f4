"""Names of horovod.torch 0.28 with arguments and defaults, and a process' identity per launcher."""

from __future__ import annotations

import inspect
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.launched import preloaded, ringdistrun

import torch_ringdist.horovod as hvd
from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod._launch_info import LaunchInfo, first_host, launched

SET = "process_set=global_process_set"
FACTORS = "prescale_factor=1.0, postscale_factor=1.0"
REDUCED = f"average=None, name=None, op=None, {FACTORS}, {SET}"
COMPRESSED = f"average=None, name=None, compression=Compression.none, op=None, {FACTORS}, {SET}"
SCATTERED = f"name=None, compression=Compression.none, op=Average, {SET}, {FACTORS}"

# Signatures from Horovod's documentation of its API for PyTorch.
SIGNATURES = {
    "allreduce": f"tensor, {COMPRESSED}",
    "allreduce_async": f"tensor, {REDUCED}",
    "allreduce_": f"tensor, {REDUCED}",
    "allreduce_async_": f"tensor, {REDUCED}",
    "grouped_allreduce": f"tensors, {COMPRESSED}",
    "grouped_allreduce_async": f"tensors, {REDUCED}",
    "grouped_allreduce_": f"tensors, {REDUCED}",
    "grouped_allreduce_async_": f"tensors, {REDUCED}",
    "sparse_allreduce_async": f"tensor, name, op, {SET}",
    "allgather": f"tensor, name=None, {SET}",
    "allgather_async": f"tensor, name=None, {SET}",
    "grouped_allgather": f"tensors, name=None, {SET}",
    "grouped_allgather_async": f"tensors, name=None, {SET}",
    "broadcast": f"tensor, root_rank, name=None, {SET}",
    "broadcast_async": f"tensor, root_rank, name=None, {SET}",
    "broadcast_": f"tensor, root_rank, name=None, {SET}",
    "broadcast_async_": f"tensor, root_rank, name=None, {SET}",
    "alltoall": f"tensor, splits=None, name=None, {SET}",
    "alltoall_async": f"tensor, splits=None, name=None, {SET}",
    "reducescatter": f"tensor, {SCATTERED}",
    "reducescatter_async": f"tensor, name=None, op=Average, {SET}, {FACTORS}",
    "grouped_reducescatter": f"tensors, {SCATTERED}",
    "grouped_reducescatter_async": f"tensors, name=None, op=Average, {SET}, {FACTORS}",
    "join": "device=-1",
    "barrier": SET,
    "poll": "handle",
    "synchronize": "handle",
    "init": "comm=None, process_sets=None",
    "shutdown": "",
    "is_initialized": "",
    "rank": "",
    "size": "",
    "local_rank": "",
    "local_size": "",
    "cross_rank": "",
    "cross_size": "",
    "is_homogeneous": "",
    "mpi_threads_supported": "",
    "mpi_enabled": "",
    "mpi_built": "",
    "gloo_enabled": "",
    "gloo_built": "",
    "nccl_built": "",
    "ddl_built": "",
    "ccl_built": "",
    "cuda_built": "",
    "rocm_built": "",
    "broadcast_object": f"obj, root_rank=0, name=None, {SET}",
    "broadcast_object_fn": f"root_rank=0, name=None, {SET}",
    "allgather_object": f"obj, name=None, {SET}",
    "broadcast_parameters": f"params, root_rank, {SET}",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
}
# Functions with more arguments than Horovod's. Horovod's come first.
LONGER = {
    "DistributedOptimizer": "optimizer, named_parameters=None, compression=Compression.none, "
    "backward_passes_per_step=1, op=Average, gradient_predivide_factor=1.0, num_groups=0, "
    f"groups=None, sparse_as_dense=False, {SET}",
    "broadcast_optimizer_state": "optimizer, root_rank",
}
OTHERS = [
    *("Average", "Sum", "Adasum", "Min", "Max", "Product", "Compression", "HorovodInternalError"),
    *("ProcessSet", "global_process_set", "SyncBatchNorm", "mpi_ops"),
]

DEFAULTS = {
    "global_process_set": hvd.global_process_set,
    "Average": hvd.Average,
    "Compression.none": hvd.Compression.none,
}


def _expected(text: str) -> list[tuple[str, object]]:
    out = []
    for part in text.split(", ") if text else []:
        name, _, default = part.partition("=")
        if not default:
            out.append((name, inspect.Parameter.empty))
        elif default in DEFAULTS:
            out.append((name, DEFAULTS[default]))
        else:
            out.append((name, {"None": None, "False": False}.get(default, default)))
    return out


def _same(own: object, expected: object) -> bool:
    if isinstance(expected, str):
        return repr(own) == expected
    return own is expected


@pytest.mark.parametrize("name", [*SIGNATURES, *LONGER])
@pytest.mark.check
def test_signature(name: str):
    own = list(inspect.signature(getattr(hvd, name)).parameters.values())
    expected = _expected(SIGNATURES.get(name, LONGER.get(name, "")))
    if name in LONGER:
        assert all(one.default is not inspect.Parameter.empty for one in own[len(expected) :])
        own = own[: len(expected)]
    assert [one.name for one in own] == [one for one, _ in expected]
    for parameter, (_, default) in zip(own, expected, strict=True):
        assert _same(parameter.default, default), parameter


@pytest.mark.parametrize("name", OTHERS)
def test_there_is(name: str):
    assert hasattr(hvd, name)


def test_all_are_documented():
    for name in [*SIGNATURES, *LONGER]:
        assert getattr(hvd, name).__doc__, name


SCRIPT = """
import horovod, horovod.torch as hvd, torch
from horovod.common.exceptions import HorovodInternalError
from horovod.common.elastic import ObjectState
from horovod.common.process_sets import ProcessSet
from horovod.torch.compression import Compression, Compressor
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState
from horovod.torch.mpi_ops import Sum, allreduce, synchronize
assert HorovodInternalError is hvd.HorovodInternalError and ProcessSet is hvd.ProcessSet
hvd.init()
assert allreduce(torch.ones(1), op=Sum).item() == hvd.size()
def twice(x, y=0):
    return 2 * x + y
if __name__ == "__main__":
    print("size", hvd.size())
"""


def test_scripts_that_import_horovod(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    alone = ["-m", "torch_ringdist.horovod", str(script)]
    for done, line in (
        (preloaded.run(alone, env=os.environ, timeout=100), "size 1"),
        (ringdistrun("-np", "2", "python", str(script)), "[0] size 2"),
    ):
        assert done.returncode == 0, done.stderr
        assert line in done.stdout.splitlines(), done.stdout


def test_a_function_on_ranks(capfd, monkeypatch: pytest.MonkeyPatch):
    from torch_ringdist.horovod import _call

    def forked(command: list[str], check: bool) -> subprocess.CompletedProcess[bytes]:
        status = preloaded.ForkedProcess(command).wait(100)
        return subprocess.CompletedProcess(command, status)

    monkeypatch.setattr(_call, "subprocess", SimpleNamespace(run=forked))
    run = _call.run
    assert run(divmod, args=(7, 2), np=2) == [(3, 1), (3, 1)]
    with pytest.raises(hvd.HorovodInternalError, match="a rank has failed"):
        run(divmod, args=(7, 0), np=2)
    assert "ZeroDivisionError" in capfd.readouterr().out
    with pytest.raises(ArgumentError, match="min_np"):
        run(divmod, args=(7, 2), np=2, min_np=1)


def test_who_a_process_is():
    assert launched({}) == LaunchInfo(0, 1, 0, 1, "127.0.0.1", 0)
    torchrun = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    where = {"MASTER_ADDR": "a", "MASTER_PORT": "7"}
    assert launched({**torchrun, **where}) == LaunchInfo(3, 4, 1, 2, "a", 7)
    mpi = "OMPI_COMM_WORLD_"
    here = {f"{mpi}RANK": "1", f"{mpi}SIZE": "2", f"{mpi}LOCAL_RANK": "1", f"{mpi}LOCAL_SIZE": "2"}
    assert launched(here) == LaunchInfo(1, 2, 1, 2, "127.0.0.1", 29500)
    slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}
    nodes = {"SLURM_STEP_NODELIST": "n[03-05]"}
    assert launched({**slurm, **nodes}) == LaunchInfo(1, 2, 0, None, "n03", 29500)
    for environment, text in [
        (torchrun, "set MASTER_ADDR"),
        ({**torchrun, **where, "RANK": "4"}, "RANK=4"),
        ({**torchrun, **where, "RANK": "x"}, "RANK must be a number"),
    ]:
        with pytest.raises(ArgumentError, match=text):
            launched(environment)


def test_first_host():
    assert first_host("node[003-005,9],other") == "node003"
    assert first_host("a,b") == "a"
    assert first_host("rack[1-2]-x") == "rack1-x"
    assert first_host("one") == "one"
