"""Train on handwritten digits while ranks die and come back.

    python -m torch_ringdist run --nproc-per-node=4 examples/elastic_digits.py
    python -m torch_ringdist run --nproc-per-node=4 examples/elastic_digits.py --codec int4

Kill any of the ranks while it trains, with kill -9 PID; the launcher prints the pids. The others
continue at once, and the launcher starts another process, which joins them. The losses are those of
a run without failures. --log FOLDER writes what each rank has done in each step. The images are the
1797 that scikit-learn ships. It needs: pip install scikit-learn tqdm
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from common import DTYPE
from ddp_digits import load_data, shifted
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

from torch_ringdist import elastic


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--epochs", type=int, default=100, help="passes over the training images (default: 100)")
    add("--steps", type=int, help="stop after this many steps")
    add("--global-batch", type=int, default=96, help="images per step (default: 96)")
    add("--lr", type=float, default=0.1, help="learning rate of SGD (default: 0.1)")
    add("--codec", help="compress the gradients, as int4 (default: no)")
    add("--no-copy", action="store_true", help="State(copy=False): keep no copies")
    add("--min-ranks", type=int, help="with fewer, training waits (default: the launcher's)")
    add("--seed", type=int, default=0, help="of the parameters and the order of the images")
    add("--pause", type=float, default=0.0, metavar="S", help="seconds that each step takes longer")
    add("--checkpoint", type=Path, default=Path("elastic_checkpoint"), help="folder; see --resume")
    add("--resume", action="store_true", help="start from the checkpoint, if there is one")
    add("--log", type=Path, metavar="FOLDER", help="write there what each step has done")
    add("--no-progress", action="store_true", help="no progress bar")
    return parser.parse_args()


def load_doubles() -> tuple[TensorDataset, TensorDataset]:
    """Returns training images and held-out images, the same on every rank."""
    train, test = (
        TensorDataset(images.to(DTYPE), labels)
        for images, labels in (data.tensors for data in load_data())
    )
    return train, test


def make_module() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


class Log:
    """Log file of this process, with a line of JSON for each event of a step."""

    def __init__(self, folder: Path | None) -> None:
        self._file = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / f"{os.getpid()}.jsonl").open("a", buffering=1)

    def write(self, **fields: object) -> None:
        if self._file is not None:
            print(json.dumps({"time": time.time(), **fields}), file=self._file)


# The training function and its State.
class Trainer:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.train_data, self.test_data = load_doubles()
        self.log = Log(args.log)
        torch.manual_seed(args.seed)
        self.module = make_module()
        self.change: elastic.Change | None = None

    def state(self) -> elastic.State:
        args = self.args
        state = elastic.State(
            module=self.module,
            optimizer=torch.optim.SGD(self.module.parameters(), lr=args.lr, momentum=0.9),
            sampler=elastic.Sampler(
                self.train_data, global_batch=args.global_batch, seed=args.seed
            ),
            epoch=0,
            copy=not args.no_copy,
        )
        state.on_change(self.on_change)
        return state

    def on_change(self, change: elastic.Change) -> None:
        self.change = change

    def over(self, state: elastic.State) -> bool:
        steps = self.args.steps
        return state.epoch >= self.args.epochs or (steps is not None and state.steps >= steps)

    def train(self, state: elastic.State) -> float:
        """Runs one generation and returns the accuracy on the held-out images."""
        model = DistributedDataParallel(state.module)
        if self.args.codec:
            state.compress(model, self.args.codec)
        assert self.change is not None
        while not self.over(state):
            images = shifted(self.train_data, self.args.seed + state.epoch)
            loader = DataLoader(images, batch_sampler=state.sampler)
            # None disables the bar if stderr is not a terminal.
            quiet = self.args.no_progress or self.change.rank != 0 or None
            name = f"epoch {state.epoch + 1}, generation {self.change.generation}"
            with tqdm(loader, desc=name, unit="step", leave=False, disable=quiet) as bar:
                for x, y in bar:
                    loss = self.step(model, state, x, y)
                    bar.set_postfix(loss=f"{loss:.3f}", ranks=self.change.size)
                    if self.over(state):
                        break
            if not self.over(state):
                state.epoch += 1
        return self.accuracy()

    def step(
        self, model: nn.Module, state: elastic.State, x: torch.Tensor, y: torch.Tensor
    ) -> float:
        """Trains one step and returns the loss over the images of all ranks."""
        assert self.change is not None
        where = {
            "step": state.steps + 1,
            "epoch": state.epoch,
            "generation": self.change.generation,
            "rank": self.change.rank,
            "size": self.change.size,
        }
        self.log.write(what="began", indices=state.sampler.indices(), **where)
        loss = nn.functional.cross_entropy(model(x), y) * state.weight
        loss.backward()
        everybodys = loss.detach().clone()
        dist.all_reduce(everybodys, op=dist.ReduceOp.AVG)
        if self.args.pause:
            time.sleep(self.args.pause)
        state.optimizer.step()
        # Logged before the commit, because commit() does not return in a process that leaves.
        self.log.write(
            what="committed",
            loss=everybodys.item(),
            parameters=parameter_hash(self.module),
            **where,
        )
        state.commit()
        return everybodys.item()

    @torch.no_grad()
    def accuracy(self) -> float:
        """Returns the accuracy on the held-out images."""
        x, y = self.test_data.tensors
        return (self.module(x).argmax(1) == y).double().mean().item()


def parameter_hash(module: nn.Module) -> str:
    digest = hashlib.sha256()
    for parameter in module.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()[:16]


def main() -> int:
    args = parse_arguments()
    torch.set_default_dtype(DTYPE)
    elastic.init(min_ranks=args.min_ranks, checkpoint=args.checkpoint)
    trainer = Trainer(args)
    state = trainer.state()
    if args.resume and state.load(args.checkpoint):
        print(f"goes on from step {state.steps}")
    accuracy = elastic.run(trainer.train)(state)
    if dist.get_rank() == 0:
        print(f"accuracy {accuracy:.4f} after step {state.steps}, of size {dist.get_world_size()}")
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
