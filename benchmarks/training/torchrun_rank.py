"""One rank of the peer torchrun: plain DDP with a checkpoint after each step, restarted by
torchrun.

Network, images and steps are those of examples/elastic_digits.py, and so is the log.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import elastic_digits
import torch
import torch.distributed as dist
from common import DTYPE
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", type=Path, help="folder for what the steps have done")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("pause", type=float, help="seconds that a step takes longer")
    args = parser.parse_args()
    torch.set_default_dtype(DTYPE)
    dist.init_process_group("ringdist")
    rank, size = dist.get_rank(), dist.get_world_size()
    train, _ = elastic_digits.load_doubles()
    torch.manual_seed(0)
    module = elastic_digits.make_module()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    step = 0
    if args.checkpoint.exists():
        state = torch.load(args.checkpoint)
        module.load_state_dict(state["module"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    model = DistributedDataParallel(module)
    log = elastic_digits.Log(args.steps)
    x, y = train.tensors
    while True:
        at = torch.arange(96) + 96 * (step % 14)
        mine = at[rank::size]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[mine]), y[mine]).backward()
        time.sleep(args.pause)
        optimizer.step()
        step += 1
        if rank == 0:
            state = {
                "module": module.state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": step,
            }
            draft = args.checkpoint.with_suffix(f".{os.getpid()}")
            torch.save(state, draft)
            draft.rename(args.checkpoint)
        log.write(
            what="committed", step=step, epoch=0, generation=0, rank=rank, size=size, loss=0.0
        )


if __name__ == "__main__":
    main()
