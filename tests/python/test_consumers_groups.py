"""Names and monitoring of groups: meshes, device strings, debug mode, torch.profiler."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from support.rank import Ranks, caught, init, same_bits, store_for
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.parallel import DistributedDataParallel


def summed(group: dist.ProcessGroup) -> int:
    """Returns the sum of 1 << rank, which identifies the members of the group."""
    total = torch.tensor(1 << dist.get_rank())
    dist.all_reduce(total, group=group)
    return int(total)


def members(*ranks: int) -> int:
    return sum(1 << rank for rank in ranks)


def _mesh() -> None:
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    for name, dim, mine in (
        ("outer", 0, (rank % 2, rank % 2 + 2)),
        ("inner", 1, (rank // 2 * 2, rank // 2 * 2 + 1)),
    ):
        group = mesh.get_group(name)
        assert dist.get_backend(group) == "ringdist"
        assert dist.get_process_group_ranks(group) == list(mine)
        assert mesh.get_local_rank(dim) == mine.index(rank)
        assert summed(group) == members(*mine), name
        assert mesh[name].get_group() is group
    flat = mesh["outer", "inner"]._flatten("all")
    assert flat.size() == 4 and summed(flat.get_group()) == members(0, 1, 2, 3)


def test_device_mesh(pools):
    pools(4).run(_mesh)


def _mesh_of_a_group() -> None:
    mesh = DeviceMesh.from_group(dist.group.WORLD, "cpu")
    assert mesh.size() == dist.get_world_size() and mesh.get_rank() == dist.get_rank()
    assert mesh.get_group() is dist.group.WORLD


def test_mesh_of_the_default_group(pools):
    pools(3).run(_mesh_of_a_group)


def _device_string(text: str) -> None:
    size = Ranks.launch.size
    dist.init_process_group(
        text, store=store_for(text), rank=Ranks.rank, world_size=size, timeout=timedelta(seconds=30)
    )
    world = dist.group.WORLD
    both = [world._get_backend(torch.device(kind)) for kind in ("cpu", "cuda")]
    assert both[0] is both[1], "one instance serves both devices"
    assert both[0].name() == "ringdist"
    assert summed(world) == members(*range(size))
    dist.barrier()
    everyone: list[int | None] = [None] * size
    dist.all_gather_object(everyone, Ranks.rank)
    assert everyone == list(range(size))
    # A group without a backend name uses the backend of the default group.
    group = dist.new_group(list(range(size)))
    assert summed(group) == members(*range(size))
    works = exchange(group)
    assert len(works) == 1, "sends and receives of a batch are one work"
    DistributedDataParallel(nn.Linear(3, 3), process_group=group)(torch.ones(1, 3)).sum().backward()
    dist.destroy_process_group()


def exchange(group: dist.ProcessGroup) -> list[dist.Work]:
    """Exchanges data with the next and the previous rank, in one batch."""
    rank, size = dist.get_rank(), dist.get_world_size()
    sent, got = torch.full((5,), float(rank)), torch.empty(5)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, sent, (rank + 1) % size, group),
            dist.P2POp(dist.irecv, got, (rank - 1) % size, group),
        ]
    )
    for work in works:
        work.wait()
    same_bits(got, torch.full((5,), float((rank - 1) % size)), "from the one before")
    return works


def test_cpu_and_cuda_by_name(fresh_pool):
    fresh_pool(2, init=False).run(_device_string, "cpu:ringdist,cuda:ringdist")


def _detail() -> None:
    dist.set_debug_level_from_env()
    init(timeout=timedelta(seconds=30))
    rank, size = dist.get_rank(), dist.get_world_size()
    wrapper = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert type(wrapper).__name__ == "_ProcessGroupWrapper", type(wrapper)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 2), find_unused_parameters=True)
    for step in range(2):
        model.zero_grad()
        model(torch.full((1, 4), float(rank + step))).sum().backward()
    expected = sum(r + 1 for r in range(size)) / size
    same_bits(model.module.weight.grad, torch.full((2, 4), expected), "the gradient")
    exchange(dist.group.WORLD)
    everyone: list[int | None] = [None] * size
    dist.all_gather_object(everyone, rank)
    assert everyone == list(range(size))
    parts = [torch.empty(2) for _ in range(size)]
    dist.all_to_all(parts, [torch.full((2,), float(rank))] * size)
    for r, part in enumerate(parts):
        same_bits(part, torch.full((2,), float(r)), f"from rank {r}")
    # In debug mode torch detects, before the operation starts, that the calls differ.
    error = caught(dist.all_reduce, torch.ones(3 + rank))
    assert error is not None and "mismatch" in error.text.lower(), error
    dist.destroy_process_group()


def test_debug_detail(fresh_pool):
    environment = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    fresh_pool(2, init=False, environment=environment).run(_detail)


def _profile(folder: str) -> dict[str, int]:
    """Returns the number of records of each operation in the trace that a browser shows."""
    model = DistributedDataParallel(nn.Linear(20, 20))
    for _ in range(2):  # before the second step DDP rebuilds its buckets, by broadcasts
        model(torch.ones(2, 20)).sum().backward()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profile:
        for _ in range(3):
            model(torch.ones(2, 20)).sum().backward()
            dist.barrier()
        dist.broadcast(torch.ones(7), 0)
    path = Path(folder) / f"{dist.get_rank()}.json"
    profile.export_chrome_trace(str(path))
    averages = {e.key: e.count for e in profile.key_averages() if "ringdist:" in e.key}
    names = [e.get("name", "") for e in json.loads(path.read_text())["traceEvents"]]
    assert {n: names.count(n) for n in names if n.startswith("ringdist:")} == averages
    return averages


def test_torch_profiler(pools, tmp_path: Path):
    for averages in pools(2).run(_profile, str(tmp_path)):
        assert averages.pop("ringdist:all_reduce") == 3, "one bucket, three steps"
        assert averages == {"ringdist:barrier": 3, "ringdist:broadcast": 1}
