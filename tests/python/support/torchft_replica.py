"""A replica group of one process that trains over torchft with ProcessGroupRingdist.

    python torchft_replica.py HOW NAME LIGHTHOUSE LOG STEPS

HOW is "ddp" (a gradient allreduce each step), "local_sgd" or "diloco" (every second step). Each
step that the Manager commits is a line of JSON in LOG.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchft import DistributedDataParallel, Manager, Optimizer
from torchft.local_sgd import DiLoCo, LocalSGD

from torch_ringdist.torchft import ProcessGroupRingdist

HOST = "127.0.0.1"
LIMIT = timedelta(seconds=20)
SYNC_EVERY = 2
PAUSE = 0.05  # seconds added to each step


def parameters_of(module: nn.Module) -> str:
    digest = hashlib.sha256()
    for parameter in module.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()[:16]


def main() -> None:
    how, name, lighthouse, log, steps = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module = nn.Linear(32, 32)
    inner = torch.optim.SGD(module.parameters(), lr=0.1)
    outer = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.9, nesterov=True)

    def state() -> dict[str, Any]:
        return {
            "module": module.state_dict(),
            "inner": inner.state_dict(),
            "outer": outer.state_dict(),
        }

    def load(saved: dict[str, Any]) -> None:
        module.load_state_dict(saved["module"])
        inner.load_state_dict(saved["inner"])
        outer.load_state_dict(saved["outer"])

    store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupRingdist(timeout=LIMIT),
        load_state_dict=load,
        state_dict=state,
        min_replica_size=1,
        use_async_quorum=how == "ddp",
        timeout=LIMIT,
        rank=0,
        world_size=1,
        store_addr=HOST,
        store_port=store.port,
        lighthouse_addr=lighthouse,
        replica_id=name,
        hostname=HOST,
    )
    if how == "ddp":
        model, optimizer = DistributedDataParallel(manager, module), Optimizer(manager, inner)
        wrapped: Any = nullcontext()
    else:
        model, optimizer = module, inner
        wrapped = (
            LocalSGD(manager, module, inner, SYNC_EVERY)
            if how == "local_sgd"
            else DiLoCo(manager, [module], inner, outer, SYNC_EVERY)
        )
    generator = torch.Generator().manual_seed(hash(name) % 1000)
    with open(log, "a", buffering=1) as file, wrapped:
        while (before := manager.current_step()) < int(steps):
            x = torch.randn(16, 32, generator=generator)
            optimizer.zero_grad()
            (model(x) - x).square().mean().backward()
            optimizer.step()
            time.sleep(PAUSE)
            if (step := manager.current_step()) != before:
                line = {
                    "step": step,
                    "size": manager.num_participants(),
                    "parameters": parameters_of(module),
                }
                print(json.dumps(line), file=file)
    manager.shutdown(wait=False)


if __name__ == "__main__":
    main()
