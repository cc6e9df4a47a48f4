"""Compares the simulation with DistributedDataParallel.

Real processes over UCX must have the same bits of every parameter after every step.
"""

from __future__ import annotations

import hashlib
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.compression_study.tasks import TASKS, Task
from benchmarks.compression_study.training import Settings, Training, make_optimiser

TIMEOUT = timedelta(seconds=120)


def check(settings: Settings) -> str:
    """Returns a line for a successful check. Raises RuntimeError with the first step that
    differs."""
    torch.set_num_threads(1)
    expected = simulate(settings)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=TIMEOUT, wait_for_workers=False)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(
            train_rank, (settings, store.port, folder), nprocs=settings.ranks
        )
        for rank in range(settings.ranks):
            found = torch.load(Path(folder) / str(rank), weights_only=True)
            for step, (ours, theirs) in enumerate(zip(found, expected, strict=True), start=1):
                if ours != theirs:
                    raise RuntimeError(
                        f"{settings}: rank {rank} of DDP has other parameters than the simulation "
                        f"after step {step}"
                    )
    return (
        f"{settings.task}, {settings.optimiser}, {settings.variant}: {settings.steps} steps of DDP "
        f"over {settings.ranks} processes gave the simulation's parameters, bit for bit"
    )


def digest(model: nn.Module) -> str:
    out = hashlib.sha256()
    for parameter in model.parameters():
        out.update(parameter.detach().numpy().tobytes())
    return out.hexdigest()


def simulate(settings: Settings) -> list[str]:
    training = Training(settings)
    ready = ready_order(training.task, settings)
    out = []
    for step in range(settings.steps):
        training.step()
        out.append(digest(training.model))
        if step == 0:
            # After the first step, DDP rebuilds its bucket in the order in which gradients became
            # ready.
            training.use_order([list(training.model.parameters())[i] for i in ready])
    return out


def ready_order(task: Task, settings: Settings) -> list[int]:
    """Returns the indices of the parameters in the order in which a backward pass finishes them."""
    model = task.new_model(settings.seed)
    order: list[int] = []
    for index, parameter in enumerate(model.parameters()):
        parameter.register_post_accumulate_grad_hook(lambda _, i=index: order.append(i))
    batches = task.batches(settings.seed, 0, settings.ranks, settings.batch)
    task.loss(model, batches[0]).backward()
    return order


def train_rank(rank: int, settings: Settings, port: int, folder: str) -> None:
    import torch_ringdist.ddp

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=TIMEOUT)
    dist.init_process_group(
        "ringdist", store=store, rank=rank, world_size=settings.ranks, timeout=TIMEOUT
    )
    task = TASKS[settings.task]
    model = task.new_model(settings.seed)
    # There must be one bucket, and the first of DDP has at most 1 MiB, whatever its cap is.
    if sum(p.nbytes for p in model.parameters()) > dist._DEFAULT_FIRST_BUCKET_BYTES:
        raise ValueError(f"{settings.task}: its gradients do not fit into DDP's first bucket")
    ddp = DistributedDataParallel(model, bucket_cap_mb=25)
    torch_ringdist.ddp.compress(ddp, settings.variant)
    optimiser = make_optimiser(settings.optimiser, list(model.parameters()), settings.lr)
    digests = []
    for step in range(settings.steps):
        batch = task.batches(settings.seed, step, settings.ranks, settings.batch)[rank]
        optimiser.zero_grad()
        task.loss(ddp, batch).backward()
        task.clip_gradients(model)
        optimiser.step()
        digests.append(digest(model))
    torch.save(digests, Path(folder) / str(rank))
    dist.destroy_process_group()
