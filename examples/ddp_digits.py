"""Train a small CNN on handwritten digits with DistributedDataParallel over ringdist.

    torchrun --nproc-per-node=2 examples/ddp_digits.py
    torchrun --nproc-per-node=2 examples/ddp_digits.py --backend gloo          the same over gloo
    torchrun --nproc-per-node=2 examples/ddp_digits.py --resume                continue a run
    torchrun --nproc-per-node=2 --max-restarts=1 examples/ddp_digits.py --kill-at 50 --kill-rank 1

The images are the 1797 of 8 x 8 pixels that scikit-learn ships, so nothing is downloaded. Only the
name given to init_process_group, and the count of bytes in the last line of output, are specific to
ringdist. The rest is plain PyTorch. It needs: pip install scikit-learn tqdm
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--backend", default="ringdist", help="of init_process_group (default: ringdist)")
    add("--init-method", help="of init_process_group, as ringdist://10.1.0.1:46999")
    add("--epochs", type=int, default=20, help="passes over the training images (default: 20)")
    add("--batch-size", type=int, default=32, help="images per rank and step (default: 32)")
    add("--lr", type=float, default=7e-3, help="peak learning rate of Adam (default: 0.007)")
    add("--seed", type=int, default=0, help="of the initial parameters and the order of images")
    add("--steps", type=int, help="stop after this many steps")
    add("--checkpoint", type=Path, default=Path("ddp_digits.pt"), help="default: ddp_digits.pt")
    add("--checkpoint-every", type=int, default=20, metavar="STEPS", help="default: 20")
    add("--resume", action="store_true", help="start from the checkpoint, if there is one")
    add("--hash-at", type=int, metavar="STEP", help="print the parameters' sha256 after this step")
    add("--kill-at", type=int, metavar="STEP", help="a rank dies there, in the first attempt only")
    add("--kill-rank", type=int, default=0, metavar="RANK", help="the rank that dies (default: 0)")
    add("--no-progress", action="store_true", help="no progress bar")
    return parser.parse_args()


class Cnn(nn.Sequential):
    """A CNN of 38,314 parameters. It has no batch norm, because running means would differ between
    the ranks."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(64 * 4 * 4, 10)),
        )


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Returns 1437 training images and 360 held-out images; the split is always the same."""
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    y = torch.tensor(labels, dtype=torch.int64)
    train, test = train_test_split(range(len(y)), test_size=360, random_state=0, stratify=labels)
    return TensorDataset(x[train], y[train]), TensorDataset(x[test], y[test])


def shifted(data: TensorDataset, seed: int) -> TensorDataset:
    """Returns the images, each shifted by up to a pixel in each direction, which adds variety to
    the data."""
    images, labels = data.tensors
    random = torch.Generator().manual_seed(seed)
    rows, columns = torch.randint(0, 3, (2, len(images), 1), generator=random) + torch.arange(8)
    padded = nn.functional.pad(images, (1, 1, 1, 1))[:, 0]
    index = torch.arange(len(images))[:, None, None]
    return TensorDataset(padded[index, rows[:, :, None], columns[:, None, :]].unsqueeze(1), labels)


class Checkpoint:
    """Saves and loads model, optimizer and position. Rank 0 has the file and sends it to the
    others."""

    def __init__(self, path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.path = path
        self.model = model
        self.optimizer = optimizer

    def save(self, position: dict[str, int]) -> None:
        """Replaces the file atomically on rank 0, so a rank that dies here leaves a complete
        file."""
        if dist.get_rank() != 0:
            return
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "position": position,
        }
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        with draft.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)

    def load(self) -> dict[str, int] | None:
        """Returns the position to continue from, or None if rank 0 finds no file. All ranks call
        it."""
        there = dist.get_rank() == 0 and self.path.exists()
        content = broadcast_bytes(self.path.read_bytes() if there else b"")
        if not content:
            return None
        state = torch.load(io.BytesIO(content), weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        return state["position"]


def broadcast_bytes(content: bytes) -> bytes:
    """Returns rank 0's `content` on every rank."""
    size = torch.tensor([len(content)])
    dist.broadcast(size, src=0)
    data = torch.empty(int(size), dtype=torch.uint8)
    if dist.get_rank() == 0 and content:
        data = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    if data.numel():
        dist.broadcast(data, src=0)
    return data.numpy().tobytes()


# Returns the sum of the values of all ranks.
def sum_over_ranks(value: int) -> int:
    total = torch.tensor(value)
    dist.all_reduce(total)
    return int(total)


def parameter_hash(model: nn.Module) -> bytes:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.digest()


# Returns True if the parameters are equal on all ranks, bit for bit.
def identical_on_all_ranks(model: nn.Module) -> bool:
    mine = torch.frombuffer(bytearray(parameter_hash(model)), dtype=torch.uint8)
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    return all(torch.equal(mine, other) for other in everyone)


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset) -> float:
    """Returns the accuracy on the whole data set. Each rank evaluates its share."""
    share = range(dist.get_rank(), len(data), dist.get_world_size())
    right = 0
    for x, y in DataLoader(Subset(data, share), batch_size=256):
        right += int((model(x).argmax(1) == y).sum())
    return sum_over_ranks(right) / len(data)


class Trainer:
    """Training loop. A restart needs only its position: epoch, images seen of it, and step."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        self.train, self.test = load_data()
        self.sampler = DistributedSampler(self.train, seed=args.seed)
        torch.manual_seed(args.seed)
        self.model = Cnn()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.checkpoint = Checkpoint(args.checkpoint, self.model, self.optimizer)
        self.epoch = self.seen = self.step = 0
        self.accuracy = 0.0

    def restore(self) -> None:
        """Loads the checkpoint if --resume was given or torchrun has restarted this process."""
        position = self.checkpoint.load() if self.args.resume or self.attempt else None
        if position is not None:
            self.epoch, self.seen, self.step = (position[k] for k in ("epoch", "seen", "step"))
            self.say(f"resumed from {self.args.checkpoint} at step {self.step}")
        else:
            # Replaces the file of an earlier run, which a restart of this run must not load.
            self.save()

    def save(self) -> None:
        self.checkpoint.save({"epoch": self.epoch, "seen": self.seen, "step": self.step})

    def say(self, text: str) -> None:
        if self.rank == 0:
            tqdm.write(text)

    def finished(self) -> bool:
        last = self.args.steps is not None and self.step >= self.args.steps
        return last or self.epoch >= self.args.epochs

    def run(self) -> None:
        self.restore()
        model = DistributedDataParallel(self.model)
        while not self.finished():
            self.run_epoch(model)
        self.save()
        self.accuracy = accuracy(self.model, self.test)

    def run_epoch(self, model: nn.Module) -> None:
        # An epoch's images and their order depend on seed and epoch only, so images already seen
        # are skipped.
        self.sampler.set_epoch(self.epoch)
        rest = list(self.sampler)[self.seen // self.world :]
        images = Subset(shifted(self.train, self.args.seed + self.epoch), rest)
        # None disables the bar if stderr is not a terminal.
        quiet = self.rank != 0 or self.args.no_progress or None
        name = f"epoch {self.epoch + 1}/{self.args.epochs}"
        loader = DataLoader(images, batch_size=self.args.batch_size)
        with tqdm(loader, desc=name, unit="step", leave=False, disable=quiet) as bar:
            for x, y in bar:
                bar.set_postfix(loss=f"{self.train_step(model, x, y):.3f}")
                if self.finished():
                    return
        self.epoch, self.seen = self.epoch + 1, 0
        self.say(f"{name}  held-out accuracy {accuracy(self.model, self.test):.4f}")

    def train_step(self, model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = self.args.lr * self.lr_factor()
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        self.optimizer.step()
        self.step += 1
        self.seen += self.args.batch_size * self.world
        self.after_step()
        return loss.item()

    def after_step(self) -> None:
        args = self.args
        if self.step == args.hash_at:
            self.say(f"parameters after step {self.step}: {parameter_hash(self.model).hex()}")
        if self.step == args.kill_at and self.rank == args.kill_rank and self.attempt == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.step % args.checkpoint_every == 0:
            self.save()

    def lr_factor(self) -> float:
        """Rises over the first epoch, then falls linearly. It depends on the position alone."""
        at = self.epoch + self.seen / len(self.train)
        return min(1.0, at + 0.1, max(0.01, 1 - (at - 1) / max(1, self.args.epochs - 1)))


def bytes_sent(backend: str) -> str:
    if backend != "ringdist":
        return f"{backend} does not count its bytes"
    import torch_ringdist

    total = sum_over_ranks(torch_ringdist.stats()["bytes_sent"])
    return f"{total / 1e6:.1f} MB sent through ringdist in all"


def main() -> int:
    args = parse_arguments()
    if "RANK" not in os.environ:
        print(f"launch me with: torchrun --nproc-per-node=2 {sys.argv[0]}", file=sys.stderr)
        return 2
    start = time.perf_counter()
    dist.init_process_group(args.backend, init_method=args.init_method)
    trainer = Trainer(args)
    trainer.run()
    same = identical_on_all_ranks(trainer.model)
    ranks = f"{trainer.world} rank{'s' * (trainer.world > 1)}"
    trainer.say(f"parameters {'identical' if same else 'DIFFER'} on {ranks}")
    trainer.say(f"sha256 {parameter_hash(trainer.model).hex()} after step {trainer.step}")
    sent = bytes_sent(args.backend)
    seconds = time.perf_counter() - start
    trainer.say(f"accuracy {trainer.accuracy:.4f}, {seconds:.1f} s, {sent}")
    dist.destroy_process_group()
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
