"""One rank of the peer torchft over gloo. Each rank has a Manager and takes part in each step's
sum.

Network and images are those of examples/elastic_digits.py, and so is the log. Each rank takes one
part of four whatever ranks exist, like torchft's sampler. Gradients travel as one tensor, because
its DDP (0.2) ends a rank by an assertion when a sum fails at once.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import elastic_digits
import torch
import torch.distributed as dist
from common import DTYPE
from torch import nn
from torchft import Manager, Optimizer, ProcessGroupGloo

from benchmarks.recovery.torchft_rank import GLOO_TIMEOUT, HOST, MANAGER_TIMEOUT
from benchmarks.training.kill import RANKS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("number", type=int, help="of this replica")
    parser.add_argument("lighthouse", help="its address")
    parser.add_argument("steps", type=Path, help="folder for what the steps have done")
    parser.add_argument("pause", type=float, help="seconds that a step takes longer")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(DTYPE)
    train, _ = elastic_digits.load_doubles()
    torch.manual_seed(0)
    module = elastic_digits.make_module()
    inner = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)

    def state() -> dict[str, Any]:
        return {"module": module.state_dict(), "optimizer": inner.state_dict()}

    def load(saved: dict[str, Any]) -> None:
        module.load_state_dict(saved["module"])
        inner.load_state_dict(saved["optimizer"])

    store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=GLOO_TIMEOUT),
        load_state_dict=load,
        state_dict=state,
        min_replica_size=1,
        timeout=MANAGER_TIMEOUT,
        rank=0,
        world_size=1,
        store_addr=HOST,
        store_port=store.port,
        lighthouse_addr=args.lighthouse,
        replica_id=f"rank_{args.number}",
        hostname=HOST,
    )
    optimizer = Optimizer(manager, inner)
    parameters = list(module.parameters())
    log = elastic_digits.Log(args.steps)
    x, y = train.tensors
    while True:
        step = manager.current_step()
        mine = (torch.arange(96) + 96 * (step % 14))[args.number :: RANKS]
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x[mine]), y[mine]).backward()
        gradients = nn.utils.parameters_to_vector([one.grad for one in parameters])
        manager.allreduce(gradients).wait()
        nn.utils.vector_to_parameters(gradients, [one.grad for one in parameters])
        time.sleep(args.pause)
        optimizer.step()
        if manager.current_step() != step:
            log.write(
                what="committed",
                step=manager.current_step(),  # a newcomer has received the others' step by now
                epoch=0,
                generation=0,
                rank=args.number,
                size=manager.num_participants(),
                loss=0.0,
            )


if __name__ == "__main__":
    main()
