"""Training tasks: a model, its data, and a measure of its quality.

Batches and initial parameters depend on seed and step alone, so that they are equal for all
candidates.
"""

from __future__ import annotations

import abc
import functools

import torch
from torch import nn

from benchmarks.compression_study import tasks as study
from benchmarks.compression_study import transformer as text

Batch = tuple[torch.Tensor, torch.Tensor]


class Task(abc.ABC):
    """A training without the exchange of gradients. `batch` counts per rank."""

    # This rate trains the uncompressed network fastest, compared with 0.03 and 0.05.
    lr = 0.1

    def __init__(self, batch: int, rank: int, world: int, seed: int) -> None:
        self.batch_size, self.rank, self.world, self.seed = batch, rank, world, seed

    @abc.abstractmethod
    def model(self) -> nn.Module: ...

    @abc.abstractmethod
    def batch(self, step: int) -> Batch: ...

    @abc.abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor: ...

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.lr, momentum=0.9, fused=True)


class Mlp(Task):
    """A network of 5.2 million parameters on scikit-learn's digits, with the split of the
    example."""

    WIDTHS = (64, 2240, 2240, 10)
    TEST_IMAGES = 360

    def __init__(self, *of_task: int) -> None:
        super().__init__(*of_task)
        self.train, self.test = _digits(self.TEST_IMAGES)
        self.steps_per_epoch = len(self.train[0]) // (self.batch_size * self.world)
        if not self.steps_per_epoch:
            raise ValueError(
                f"batch: {self.batch_size} on {self.world} ranks is more than there is"
            )

    def model(self) -> nn.Module:
        layers: list[nn.Module] = []
        for before, after in zip(self.WIDTHS, self.WIDTHS[1:], strict=False):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    def batch(self, step: int) -> Batch:
        epoch, place = divmod(step, self.steps_per_epoch)
        generator = torch.Generator().manual_seed(1000 * self.seed + epoch)
        order = torch.randperm(len(self.train[0]), generator=generator)
        images = self.batch_size * self.world
        mine = order[place * images : (place + 1) * images][self.rank :: self.world]
        return self.train[0][mine], self.train[1][mine]

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    @torch.no_grad()
    def right(self, model: nn.Module) -> int:
        """Returns the number of correctly classified held-out images in this rank's share."""
        x, y = (part[self.rank :: self.world] for part in self.test)
        return int((model(x).argmax(1) == y).sum())


class Text(Task):
    """The transformer of the study, on the source code of the standard library."""

    def model(self) -> nn.Module:
        return text.Transformer()

    def batch(self, step: int) -> Batch:
        batches = study.TASKS["text"].batches(self.seed, step, self.world, self.batch_size)
        return batches[self.rank]

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)


# Tasks by their names in the accuracy study.
TASKS: dict[str, type[Task]] = {"mlp5m": Mlp, "text": Text}


@functools.cache
def _digits(test_images: int) -> tuple[Batch, Batch]:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32) / 16
    y = torch.tensor(labels, dtype=torch.int64)
    train, test = train_test_split(
        range(len(y)), test_size=test_images, random_state=0, stratify=labels
    )
    return (x[train], y[train]), (x[test], y[test])
