"""Train an MLP with layers split over the ranks (tensor parallel) on handwritten digits.

    torchrun --nproc-per-node=2 examples/tensor_parallel.py
    torchrun --nproc-per-node=4 examples/tensor_parallel.py --hidden 512
    torchrun --nproc-per-node=2 examples/tensor_parallel.py --backend gloo     the same over gloo

In each block the first layer is split by columns, the second by rows. A rank computes its part of
the hidden units, and one all-reduce per block adds up the results. All ranks train on the same
images. At the end rank 0 trains the same network once more, alone, and compares the losses. Only
the name given to init_process_group is specific to ringdist; the rest is plain PyTorch. It needs:
pip install scikit-learn tqdm
"""

from __future__ import annotations

import argparse
import sys
import time

import common
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from tqdm import tqdm


def parse_arguments() -> argparse.Namespace:
    parser = common.make_parser(__doc__)
    add = parser.add_argument
    add("--epochs", type=int, default=10, help="passes over the training images (default: 10)")
    add("--batch-size", type=int, default=64, help="images per step (default: 64)")
    add("--hidden", type=int, default=256, help="hidden units per block, split (default: 256)")
    add("--lr", type=float, default=2e-3, help="learning rate of Adam (default: 0.002)")
    return parser.parse_args()


class Block(nn.Module):
    """Maps [images, 64] to [images, 64]. `up` is split by columns, `down` by rows."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, hidden), nn.Linear(hidden, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


def make_model(args: argparse.Namespace) -> nn.Sequential:
    torch.manual_seed(args.seed)  # the same parameters on every rank, and in both runs
    return nn.Sequential(Block(args.hidden), Block(args.hidden), nn.Linear(64, 10))


def split(model: nn.Sequential) -> nn.Module:
    """Splits the blocks. The last layer is small, so every rank keeps and computes all of it."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {}
    for name, module in model.named_children():
        if isinstance(module, Block):
            plan |= {f"{name}.up": ColwiseParallel(), f"{name}.down": RowwiseParallel()}
    return parallelize_module(model, mesh, plan)


def load_data() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Returns 1437 training images and 360 held-out images of common.digits()."""
    images, labels = common.digits()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x, y = images[order], labels[order]
    return (x[360:], y[360:]), (x[:360], y[:360])


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, args, name: str) -> torch.Tensor:
    """Returns the losses, one per step; they are the same on all ranks."""
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    random = torch.Generator().manual_seed(args.seed)
    epochs = [torch.randperm(len(x), generator=random) for _ in range(args.epochs)]
    steps = [part for order in epochs for part in order.split(args.batch_size)]
    losses = []
    # None disables the bar if stderr is not a terminal.
    quiet = dist.get_rank() != 0 or args.no_progress or None
    with tqdm(steps, desc=name, unit="step", leave=False, disable=quiet) as bar:
        for part in bar:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[part]), y[part])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            bar.set_postfix(loss=f"{losses[-1]:.3f}")
    return torch.tensor(losses)


@torch.no_grad()
def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Returns the accuracy. All ranks call it, because each has only a part of the model."""
    return (model(x).argmax(1) == y).double().mean().item()


def compare(split_losses: torch.Tensor, x: torch.Tensor, y: torch.Tensor, args) -> None:
    """Repeats the training in this process alone. Raises AssertionError if the losses differ."""
    alone = train(make_model(args), x, y, args, "rank 0 alone")
    common.compare(split_losses, alone)


def run(args: argparse.Namespace) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    training, held_out = load_data()
    start = time.perf_counter()
    model = split(make_model(args))
    losses = train(model, *training, args, f"{world} ranks")
    seconds = time.perf_counter() - start
    right = accuracy(model, *held_out)
    if rank == 0:
        part = tuple(model[0].up.weight.to_local().shape)
        print(f"rank 0 holds {part} of the first layer's {tuple(model[0].up.weight.shape)}")
        print(f"held-out accuracy {right:.4f}, {seconds:.1f} s; now the same in one process")
        compare(losses, *training, args)


def main() -> int:
    args = parse_arguments()
    return common.launch(args, lambda: run(args), lambda world: None)


if __name__ == "__main__":
    sys.exit(main())
