"""A training loop of elastic.run with an optional mistake on one worker, or on all.

    python -m torch_ringdist run --nproc-per-node=3 tests/chaos/loop.py --wrong=keys --worker=1

It learns a linear map of random numbers, so a step takes a millisecond. With `--owed FOLDER` each
rank writes its residuals as a share of the mean, when a generation begins and after each step.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from torch_ringdist import elastic

# Mistakes of one worker (the first two) or of all.
KEYS, SHAPES = "keys", "shapes"
RAISE, DRIFT, LATE = "raise", "drift", "late"
WRONG = ("", KEYS, SHAPES, RAISE, DRIFT, LATE)
DRIFT_AT = 5  # steps


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--steps", type=int, default=100)
    add("--pause", type=float, default=0.01)
    add(
        "--hurry",
        type=Path,
        help="once this file exists, steps have no pause, for launchers that do not fork",
    )
    add("--codec")
    add("--wrong", choices=WRONG, default="")
    add("--worker", type=int, default=-1, help="where it is wrong; -1: everywhere")
    add("--no-copy", action="store_true")
    add("--min-ranks", type=int)
    add("--rejoin-timeout", type=float, default=60.0)
    add("--checkpoint", default="checkpoint")
    add("--owed", type=Path)
    add("--hook", action="store_true", help="torch's own that sends fp16")
    add("--linger-until", type=Path, help="rank 0 has more to do in the end, until it exists")
    return parser.parse_args()


class Loop:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        worker = int(os.environ["LOCAL_RANK"])
        self.wrong = args.wrong if args.worker in (-1, worker) else ""
        torch.manual_seed(0)
        net = nn.Linear(64, 65 if self.wrong == SHAPES else 64)
        entries: dict[str, object] = {
            "net": net,
            "optimizer": torch.optim.SGD(net.parameters(), lr=0.01),
            "sampler": elastic.Sampler(range(1_000_000), global_batch=1),
        }
        if self.wrong == KEYS:
            entries["more"] = 1
        self.state = elastic.State(copy=not args.no_copy, **entries)

    def train(self, state: elastic.State) -> int:
        model = DistributedDataParallel(state.net)
        if self.args.codec:
            state.compress(model, self.args.codec)
        if self.args.hook:
            model.register_comm_hook(None, fp16_compress_hook)
        self.log("entered")
        while state.steps < self.args.steps:
            self.step(model)
            state.commit()
            self.log("committed")
        until = self.args.linger_until
        while dist.get_rank() == 0 and until is not None and not until.exists():
            time.sleep(0.02)
        return state.steps

    def step(self, model: nn.Module) -> None:
        state, wrong = self.state, self.wrong
        generator = torch.Generator().manual_seed(state.steps)
        x = torch.randn(64, 64, generator=generator)[dist.get_rank() :: dist.get_world_size()]
        (model(x) - x).square().mean().backward()
        if wrong == LATE:
            state.optimizer.step()
        if wrong == RAISE and state.steps == DRIFT_AT:
            raise ValueError("a mistake of the user's")
        if self.args.hurry is None or not self.args.hurry.exists():
            time.sleep(self.args.pause)
        dist.all_reduce(torch.ones(1))
        if wrong != LATE:
            state.optimizer.step()
        if wrong == DRIFT and state.steps == DRIFT_AT:
            with torch.no_grad():
                state.net.bias[3] += 1

    def log(self, what: str) -> None:
        if self.args.owed is None:
            return
        # This uses the State's own accounting: the total over all ranks must not change.
        state = self.state
        owed = sum(
            share.double().sum().item()
            for one in state._residuals.owed()
            for share in one["residuals"].values()
        )
        line = {
            "what": what,
            "step": state.steps,
            "rank": dist.get_rank(),
            "size": dist.get_world_size(),
            "generation": dist.group.WORLD.group_name,
            "owed": owed,
        }
        self.args.owed.mkdir(exist_ok=True)
        with (self.args.owed / f"{os.getpid()}.jsonl").open("a") as file:
            print(json.dumps(line), file=file)


def main() -> int:
    args = parse_arguments()
    elastic.init(args.min_ranks, args.rejoin_timeout, checkpoint=args.checkpoint)
    loop = Loop(args)
    steps = elastic.run(loop.train)(loop.state)
    print(f"trained {steps} steps, {dist.get_world_size()} ranks")
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
