"""Train a small character transformer, sharded with FSDP2 (fully_shard) over ringdist.

    torchrun --nproc-per-node=2 examples/fsdp2_char_lm.py
    torchrun --nproc-per-node=4 examples/fsdp2_char_lm.py --replicas 2         HSDP: 2 replicas of 2
    torchrun --nproc-per-node=2 examples/fsdp2_char_lm.py --backend gloo       the same over gloo

The text is the source code of Python's standard library, so nothing is downloaded. Each rank holds
a part of the parameters, gradients and optimizer states, and trains on its own part of each batch.
At the end rank 0 trains the same network once more, alone and on the whole batches, and compares
the losses. Only the name given to init_process_group is specific to ringdist; the rest is plain
PyTorch. It needs: pip install tqdm
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import common
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from tqdm import tqdm

TEXT_BYTES = 2_000_000
SYMBOLS = 128


def parse_arguments() -> argparse.Namespace:
    parser = common.make_parser(__doc__)
    add = parser.add_argument
    add("--replicas", type=int, default=1, help="above 1: HSDP, this many copies (default: 1)")
    add("--steps", type=int, default=150, help="of training (default: 150)")
    add("--batch-size", type=int, default=8, help="sequences per rank and step (default: 8)")
    add("--context", type=int, default=64, help="characters per sequence (default: 64)")
    add("--width", type=int, default=64, help="of the network; a multiple of 16 (default: 64)")
    add("--layers", type=int, default=2, help="transformer blocks (default: 2)")
    add("--lr", type=float, default=3e-3, help="learning rate of AdamW (default: 0.003)")
    return parser.parse_args()


def complaint(args: argparse.Namespace, world: int) -> str | None:
    """Returns a problem with the arguments and how to fix it, or None."""
    if args.replicas < 1 or world % args.replicas:
        return f"--replicas {args.replicas}: give a divisor of the number of ranks, {world}"
    if args.width % 16:
        return f"--width {args.width}: give a multiple of 16, the width of a head"
    return None


class Block(nn.Module):
    """Causal attention and an MLP, each behind a norm and added to its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // 16
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x and the result are [batch, length, width]."""
        qkv = self.qkv(self.before_attention(x)).unflatten(2, (3, self.heads, 16))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.before_mlp(x))


class Transformer(nn.Module):
    """Maps characters, int64 [batch, length], to the scores of the next, [batch * length, 128]."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.characters = nn.Embedding(SYMBOLS, args.width)
        self.places = nn.Parameter(torch.randn(args.context, args.width) / args.width**0.5)
        self.blocks = nn.ModuleList(Block(args.width) for _ in range(args.layers))
        self.norm, self.head = nn.LayerNorm(args.width), nn.Linear(args.width, SYMBOLS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.characters(text) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).flatten(0, 1))


def load_text() -> torch.Tensor:
    """Returns rank 0's standard library as characters below 128, on every rank, because versions
    may differ."""
    text = torch.empty(TEXT_BYTES, dtype=torch.uint8)
    if dist.get_rank() == 0:
        files = sorted(Path(os.__file__).parent.glob("*.py"))
        source = b"".join(file.read_bytes() for file in files)[:TEXT_BYTES]
        if len(source) < TEXT_BYTES:
            sys.exit(f"only {len(source)} bytes of source beside {os.__file__}: use a full Python")
        text = torch.frombuffer(bytearray(source), dtype=torch.uint8) % SYMBOLS
    dist.broadcast(text, src=0)
    return text.long()


def batches(text: torch.Tensor, args: argparse.Namespace) -> Iterator[torch.Tensor]:
    """Yields the whole batch of each step, [ranks * batch size, context + 1], the same on all
    ranks."""
    random = torch.Generator().manual_seed(args.seed)
    windows = text.unfold(0, args.context + 1, 1)
    for _ in range(args.steps):
        count = args.batch_size * dist.get_world_size()
        yield windows[torch.randint(len(windows), (count,), generator=random)]


def make_mesh(replicas: int) -> DeviceMesh:
    """Returns a mesh of one dimension for sharding. HSDP has a dimension for replicas before it."""
    world = dist.get_world_size()
    if replicas == 1:
        return init_device_mesh("cpu", (world,), mesh_dim_names=("shard",))
    shape = (replicas, world // replicas)
    return init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))


def make_model(args: argparse.Namespace) -> Transformer:
    torch.manual_seed(args.seed)  # the same parameters on every rank, and in both runs
    return Transformer(args)


def shard(model: Transformer, mesh: DeviceMesh) -> None:
    """Shards the model. Each block gathers its parameters when they are needed, the root all
    others."""
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def train(model: nn.Module, data: Iterator[torch.Tensor], args, name: str) -> torch.Tensor:
    """Returns the losses of this rank's share of `data`, one per step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    losses = []
    # None disables the bar if stderr is not a terminal.
    quiet = dist.get_rank() != 0 or args.no_progress or None
    with tqdm(data, desc=name, total=args.steps, unit="step", leave=False, disable=quiet) as bar:
        for batch in bar:
            optimizer.zero_grad()
            scores = model(batch[:, :-1])
            loss = functional.cross_entropy(scores, batch[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            bar.set_postfix(loss=f"{losses[-1]:.3f}")
    return torch.tensor(losses)


def train_sharded(text: torch.Tensor, args: argparse.Namespace) -> torch.Tensor:
    """Returns the losses of the whole batches, one per step, on every rank."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model = make_model(args)
    whole = sum(p.numel() for p in model.parameters())
    shard(model, make_mesh(args.replicas))
    mine = sum(p.to_local().numel() for p in model.parameters())
    if rank == 0:
        print(f"{whole} parameters, of which rank 0 holds {mine}")
    share = (batch.chunk(world)[rank] for batch in batches(text, args))
    losses = train(model, share, args, f"{world} ranks")
    dist.all_reduce(losses)
    return losses / world


def compare(sharded: torch.Tensor, text: torch.Tensor, args: argparse.Namespace) -> None:
    """Repeats the training in this process alone. Raises AssertionError if the losses differ."""
    alone = train(make_model(args), batches(text, args), args, "rank 0 alone")
    common.compare(sharded, alone)


def run(args: argparse.Namespace) -> None:
    start = time.perf_counter()
    text = load_text()
    losses = train_sharded(text, args)
    seconds = time.perf_counter() - start
    if dist.get_rank() == 0:
        print(f"{args.steps} steps in {seconds:.1f} s; now the same in one process")
        compare(losses, text, args)


def main() -> int:
    args = parse_arguments()
    return common.launch(args, lambda: run(args), lambda world: complaint(args, world))


if __name__ == "__main__":
    sys.exit(main())
