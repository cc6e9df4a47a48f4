"""Train a small CNN on handwritten digits with Horovod's API over ringdist.

    ringdistrun -np 2 python examples/horovod_digits.py
    torchrun --nproc-per-node=2 examples/horovod_digits.py
    torchrun --nproc-per-node=2 examples/horovod_digits.py --compression fp16

A script for Horovod changes one line, `import horovod.torch as hvd`. Model, data and learning rates
are those of ddp_digits.py. On two ranks the final parameters are equal, bit for bit. It needs: pip
install scikit-learn tqdm
"""

from __future__ import annotations

import argparse

import torch
from ddp_digits import Cnn, load_data, parameter_hash, shifted
from torch import nn
from torch.utils.data import DataLoader, Subset
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm

import torch_ringdist.horovod as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--epochs", type=int, default=20, help="passes over the training images (default: 20)")
    add("--batch-size", type=int, default=32, help="images per rank and step (default: 32)")
    add("--lr", type=float, default=7e-3, help="peak learning rate of Adam (default: 0.007)")
    add("--seed", type=int, default=0, help="of the initial parameters and the order of images")
    add("--steps", type=int, help="stop after this many steps")
    add("--compression", choices=["none", "fp16"], default="none", help="of gradients")
    add("--no-progress", action="store_true", help="no progress bar")
    return parser.parse_args()


def learning_rate(args: argparse.Namespace, epochs: float) -> float:
    """Rises over the first epoch, then falls linearly."""
    down = max(0.01, 1 - (epochs - 1) / max(1, args.epochs - 1))
    return args.lr * min(1.0, epochs + 0.1, down)


@torch.no_grad()
def accuracy(model: nn.Module, data: torch.utils.data.TensorDataset) -> float:
    """Returns the accuracy on the whole data set. Each rank evaluates its share."""
    share = Subset(data, range(hvd.rank(), len(data), hvd.size()))
    right = sum(int((model(x).argmax(1) == y).sum()) for x, y in DataLoader(share, batch_size=256))
    return hvd.allreduce(torch.tensor(right), op=hvd.Sum, name="right").item() / len(data)


def say(text: str) -> None:
    if hvd.rank() == 0:
        tqdm.write(text)


def main() -> None:
    args = parse_arguments()
    hvd.init()
    train, test = load_data()
    torch.manual_seed(args.seed + hvd.rank())  # rank 0's parameters are used
    model = Cnn()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=args.lr),
        named_parameters=model.named_parameters(),
        compression=getattr(hvd.Compression, args.compression),
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    sampler = DistributedSampler(train, hvd.size(), hvd.rank(), seed=args.seed)
    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        images = Subset(shifted(train, args.seed + epoch), list(sampler))
        loader = DataLoader(images, batch_size=args.batch_size)
        name = f"epoch {epoch + 1}/{args.epochs}"
        seen = 0
        # None disables the bar if stderr is not a terminal.
        quiet = hvd.rank() != 0 or args.no_progress or None
        for x, y in tqdm(loader, desc=name, unit="step", leave=False, disable=quiet):
            if step == args.steps:
                break
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(args, epoch + seen / len(train))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            step, seen = step + 1, seen + args.batch_size * hvd.size()
        if step == args.steps:
            break
        say(f"{name}  held-out accuracy {accuracy(model, test):.4f}")
    hashes = hvd.allgather_object(parameter_hash(model).hex())
    ranks = f"{hvd.size()} rank{'s' * (hvd.size() > 1)}"
    say(f"parameters {'identical' if len(set(hashes)) == 1 else 'DIFFER'} on {ranks}")
    say(f"sha256 {hashes[0]} after step {step}")
    say(f"accuracy {accuracy(model, test):.4f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
