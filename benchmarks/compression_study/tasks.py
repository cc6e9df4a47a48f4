"""Tasks of the study: networks, data, and measures of the result."""

from __future__ import annotations

import functools
import sysconfig
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.compression_study.transformer import CONTEXT, VOCABULARY, Transformer

Batch = tuple[Tensor, Tensor]


class Task(ABC):
    """A training task. Its model, batches and figure of merit depend on the seed only, so that runs
    with the same seed form pairs."""

    name: ClassVar[str]
    about: ClassVar[str]
    unit: ClassVar[str]  # unit of differences in the metric
    scale: ClassVar[float]  # factor from metric to unit
    better: ClassVar[int]  # +1 if higher values are better, -1 if lower ones are
    bound: ClassVar[float]  # in units; within it a codec counts as good as none
    steps: ClassVar[int]
    batch: ClassVar[int] = 32  # per rank
    evaluate_every: ClassVar[int]
    clip: ClassVar[float | None] = None  # limit for the averaged gradient's norm
    learning_rates: ClassVar[dict[str, tuple[float, ...]]]
    cost: ClassVar[float]  # rough milliseconds of a step of 4 ranks with batches of 32

    @abstractmethod
    def model(self) -> nn.Module: ...
    @abstractmethod
    def sample(self, count: int, random: torch.Generator) -> Batch: ...
    @abstractmethod
    def metric(self, model: nn.Module) -> float: ...

    def tolerance(self, reference: float) -> float:
        """Returns one percent of the reference, in units of the metric, which slow codecs may lack
        at the end."""
        return 0.01 if self.better > 0 else 0.01 * reference

    def new_model(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return self.model()

    def batches(self, seed: int, step: int, ranks: int, size: int) -> list[Batch]:
        """Returns each rank's batch of `size` for one step."""
        random = torch.Generator().manual_seed(seed * 1_000_000 + step)
        inputs, targets = self.sample(ranks * size, random)
        return list(zip(inputs.split(size), targets.split(size), strict=True))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        outputs = model(batch[0])
        return cross_entropy(outputs.flatten(0, -2), batch[1].flatten())

    def clip_gradients(self, model: nn.Module) -> None:
        if self.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), self.clip)


class Digits(Task):
    name = "digits"
    about = "MLP 64-256-256-10 on scikit-learn's digits, 450 of 1797 held out"
    unit, scale, better, bound = "% accuracy", 100.0, 1, 0.5
    steps, evaluate_every = 300, 20
    learning_rates: ClassVar = {"sgd": (0.05, 0.1, 0.2, 0.4), "adamw": (1e-3, 2e-3, 4e-3, 8e-3)}
    cost = 12.0
    hidden = 256

    def model(self) -> nn.Module:
        return nn.Sequential(
            *(nn.Linear(64, self.hidden), nn.ReLU()),
            *(nn.Linear(self.hidden, self.hidden), nn.ReLU()),
            nn.Linear(self.hidden, 10),
        )

    def sample(self, count: int, random: torch.Generator) -> Batch:
        images, labels, _, _ = digits()
        chosen = torch.randint(len(labels), (count,), generator=random)
        return images[chosen], labels[chosen]

    @torch.no_grad()
    def metric(self, model: nn.Module) -> float:
        _, _, images, labels = digits()
        return (model(images).argmax(1) == labels).double().mean().item()


class WideDigits(Digits):
    name = "mlp5m"
    about = "MLP 64-2240-2240-10 (5.2 million parameters) on scikit-learn's digits"
    steps, evaluate_every = 100, 4
    learning_rates: ClassVar = {"sgd": (0.02, 0.05, 0.1), "adamw": (1e-4, 3e-4, 1e-3)}
    cost = 250.0
    hidden = 2240


class Text(Task):
    name = "text"
    about = "character transformer of two layers on the source of Python's standard library"
    unit, scale, better, bound = "nats", 1.0, -1, 0.03
    steps, evaluate_every = 300, 20
    batch = 16
    clip = 1.0
    learning_rates: ClassVar = {"sgd": (0.03, 0.1, 0.3), "adamw": (1e-3, 3e-3, 6e-3)}
    cost = 80.0

    def model(self) -> nn.Module:
        return Transformer()

    def sample(self, count: int, random: torch.Generator) -> Batch:
        train, _ = source_text()
        return windows(train, torch.randint(len(train) - CONTEXT, (count,), generator=random))

    @torch.no_grad()
    def metric(self, model: nn.Module) -> float:
        """Returns the validation loss."""
        _, held_out = source_text()
        starts = torch.linspace(0, len(held_out) - CONTEXT - 1, 128).long()
        return self.loss(model, windows(held_out, starts)).item()


TASKS: dict[str, Task] = {task.name: task for task in (Digits(), Text(), WideDigits())}


@functools.cache
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns training images and labels, and held-out ones. The split is always the same."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32) / 16
    y = torch.tensor(labels, dtype=torch.int64)
    train, test = train_test_split(range(len(y)), test_size=450, random_state=0, stratify=labels)
    return x[train], y[train], x[test], y[test]


@functools.cache
def source_text() -> tuple[Tensor, Tensor]:
    """Returns ASCII codes for training, and held-out codes from every tenth file."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    texts = [file.read_bytes() for file in files]
    train = b"".join(text for i, text in enumerate(texts) if i % 10)
    return as_codes(train), as_codes(b"".join(texts[::10]))


def as_codes(text: bytes) -> Tensor:
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long().clamp(max=VOCABULARY - 1)


def windows(text: Tensor, starts: Tensor) -> Batch:
    index = starts[:, None] + torch.arange(CONTEXT)
    return text[index], text[index + 1]
