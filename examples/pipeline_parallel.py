"""Train a network with its layers on different ranks (pipeline parallel) on handwritten digits.

    torchrun --nproc-per-node=2 examples/pipeline_parallel.py
    torchrun --nproc-per-node=4 examples/pipeline_parallel.py --microbatches 8
    torchrun --nproc-per-node=2 examples/pipeline_parallel.py --backend gloo   the same over gloo

Rank 0 has the first layers and the images, the last rank has the last layers and the labels. A
batch is split into microbatches, which the 1F1B schedule processes. Each rank alternates between
one forward and one backward, and sends and receives meanwhile. At the end rank 0 trains the whole
network once more, alone, and compares the losses. Only the name given to init_process_group is
specific to ringdist; the rest is plain PyTorch. It needs: pip install scikit-learn tqdm
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import common
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from tqdm import tqdm


def parse_arguments() -> argparse.Namespace:
    parser = common.make_parser(__doc__)
    add = parser.add_argument
    add("--epochs", type=int, default=10, help="passes over the training images (default: 10)")
    add("--batch-size", type=int, default=64, help="images per step (default: 64)")
    add("--microbatches", type=int, default=4, help="per batch; not below the ranks (default: 4)")
    add("--blocks", type=int, default=6, help="of the network; not below the ranks (default: 6)")
    add("--lr", type=float, default=2e-3, help="learning rate of Adam (default: 0.002)")
    return parser.parse_args()


def complaint(args: argparse.Namespace, world: int) -> str | None:
    """Returns a problem with the arguments and how to fix it, or None."""
    if world < 2:
        return "a pipeline has 2 ranks or more: launch me with torchrun --nproc-per-node=2"
    if args.microbatches < world:
        return f"--microbatches {args.microbatches}: give at least {world}, one per rank"
    if args.batch_size % args.microbatches:
        return f"--batch-size {args.batch_size}: give a multiple of {args.microbatches}"
    if args.blocks < world:
        return f"--blocks {args.blocks}: give at least {world}, one per rank"
    return None


class Block(nn.Module):
    """Maps [images, 64] to [images, 64]."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


def make_model(args: argparse.Namespace) -> nn.Sequential:
    torch.manual_seed(args.seed)  # the same parameters on every rank, and in both runs
    return nn.Sequential(*(Block() for _ in range(args.blocks)), nn.Linear(64, 10))


def my_part(model: nn.Sequential) -> nn.Sequential:
    """Returns the layers of this rank; ranks differ by at most one layer."""
    rank, world = dist.get_rank(), dist.get_world_size()
    return model[rank * len(model) // world : (rank + 1) * len(model) // world]


def make_step(stage: PipelineStage, args: argparse.Namespace) -> Callable[..., float | None]:
    """Returns a function of (x, y) that runs forward and backward of a batch. It returns the loss
    on the last rank, and None on others."""
    schedule = Schedule1F1B(stage, args.microbatches, loss_fn=nn.functional.cross_entropy)

    def step(x: torch.Tensor, y: torch.Tensor) -> float | None:
        losses: list[torch.Tensor] = []
        inputs = (x,) if stage.is_first else ()
        if not stage.is_last:
            schedule.step(*inputs)
            return None
        schedule.step(*inputs, target=y, losses=losses)
        return torch.stack(losses).mean().item()

    return step


def train(model: nn.Module, step: Callable[..., float | None], args, name: str) -> torch.Tensor:
    """Returns the losses, one per step; NaN on ranks where `step` returns None."""
    x, y = common.digits()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    random = torch.Generator().manual_seed(args.seed)
    # Microbatches have one size, so the images beyond a multiple of the batch size are left out.
    whole = len(x) // args.batch_size * args.batch_size
    epochs = [torch.randperm(len(x), generator=random)[:whole] for _ in range(args.epochs)]
    steps = [part for order in epochs for part in order.split(args.batch_size)]
    losses = []
    # None disables the bar if stderr is not a terminal.
    quiet = dist.get_rank() != 0 or args.no_progress or None
    for part in tqdm(steps, desc=name, unit="step", leave=False, disable=quiet):
        optimizer.zero_grad()
        loss = step(x[part], y[part])
        optimizer.step()
        losses.append(float("nan") if loss is None else loss)
    return torch.tensor(losses)


def train_in_a_pipeline(args: argparse.Namespace) -> torch.Tensor:
    """Returns the losses, one per step, on every rank."""
    rank, world = dist.get_rank(), dist.get_world_size()
    part = my_part(make_model(args))
    stage = PipelineStage(part, rank, world, torch.device("cpu"))
    losses = train(part, make_step(stage, args), args, f"{world} ranks")
    dist.broadcast(losses, src=world - 1)
    return losses


def compare(piped: torch.Tensor, args: argparse.Namespace) -> None:
    """Repeats the training in this process alone. Raises AssertionError if the losses differ."""
    model = make_model(args)

    def step(x: torch.Tensor, y: torch.Tensor) -> float:
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss.item()

    alone = train(model, step, args, "rank 0 alone")
    common.compare(piped, alone)


def run(args: argparse.Namespace) -> None:
    start = time.perf_counter()
    losses = train_in_a_pipeline(args)
    seconds = time.perf_counter() - start
    if dist.get_rank() == 0:
        print(f"{len(losses)} steps in {seconds:.1f} s; now the same in one process")
        compare(losses, args)


def main() -> int:
    args = parse_arguments()
    return common.launch(args, lambda: run(args), lambda world: complaint(args, world))


if __name__ == "__main__":
    sys.exit(main())
