"""One training of one model by several ranks that are simulated in this process.

All ranks hold the same parameters, so there is one model. Each rank has its own batches, gradients
and residuals. Exchanged data goes through the real schedules and codecs.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.compression_study.tasks import TASKS, Task
from benchmarks.compression_study.variants import UNCOMPRESSED, Part, Variant, parts_of
from torch_ringdist import _native


@dataclass(frozen=True)
class Settings:
    """Everything that determines a run's result, except the code."""

    task: str
    optimiser: str  # "sgd" (momentum 0.9) or "adamw"
    lr: float
    variant: str
    seed: int
    steps: int
    equal_steps: int  # extra evaluation at the number of steps of the uncompressed run
    batch: int = 32  # per rank
    ranks: int = 4
    drift: bool = False


def make_optimiser(name: str, parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    return torch.optim.AdamW(parameters, lr=lr)


class Drift:
    """Distance between the sums of the applied updates and of the true means.

    It covers the parameters with the codec under study. Rules give other codecs to the rest.
    """

    def __init__(self, parts: list[Part], codec: str, ranks: int) -> None:
        self.ranks = ranks
        self.counts = torch.cat([torch.full((n,), name == codec) for n, _, name, _ in parts])
        self.true = torch.zeros(len(self.counts), dtype=torch.float64)
        self.applied = torch.zeros_like(self.true)

    def before(self, gradients: list[Tensor]) -> None:
        for gradient in gradients:
            self.true.add_(gradient, alpha=1 / self.ranks)

    def after(self, mean: Tensor) -> None:
        self.applied.add_(mean)

    def value(self, residuals: list[Tensor] | None) -> float:
        """Returns |applied + residual - true| / |true|. There is no residual without error
        feedback."""
        off = self.applied - self.true
        for residual in residuals or ():
            off.add_(residual, alpha=1 / self.ranks)
        return (off[self.counts].norm() / self.true[self.counts].norm()).item()


class Training:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.task: Task = TASKS[settings.task]
        self.variant = Variant.parse(settings.variant)
        self.ranks = _native.load().LocalRanks(settings.ranks)
        self.model = self.task.new_model(settings.seed)
        parameters = list(self.model.parameters())
        self.elements = sum(p.numel() for p in parameters)
        self.optimiser = make_optimiser(settings.optimiser, parameters, settings.lr)
        self.gradients = self._buffers()
        self.residuals = self._buffers() if self.variant.feeds_back(settings.ranks) else None
        self.order: list[nn.Parameter] = []
        self.parts: list[Part] = []
        self.use_order(parameters)
        self.drift: Drift | None = None
        if settings.drift:
            name, _, _ = _native.load().codec_traits(self.variant.codec, settings.ranks)
            self.drift = Drift(self.parts, name, settings.ranks)
        self.done = 0

    def _buffers(self) -> list[Tensor]:
        return [torch.zeros(self.elements) for _ in range(self.settings.ranks)]

    def use_order(self, order: list[nn.Parameter]) -> None:
        """Sets the order of gradients in the buffer for later steps."""
        for residual in self.residuals or ():
            if self.order:
                residual.copy_(rearranged(residual, self.order, order))
        self.order = order
        self.parts = parts_of(self.model, order, self.variant, self.settings.ranks)
        at = 0
        for parameter in order:
            place = self.gradients[0][at : at + parameter.numel()]
            parameter.grad = place.view_as(parameter)
            at += parameter.numel()

    def step(self) -> float:
        """Runs one step of all ranks and returns their mean loss."""
        s = self.settings
        loss = 0.0
        batches = self.task.batches(s.seed, self.done, s.ranks, s.batch)
        for batch, buffer in zip(batches, self.gradients, strict=True):
            own = self.task.loss(self.model, batch)
            gradients = torch.autograd.grad(own, self.order)
            torch.cat([gradient.reshape(-1) for gradient in gradients], out=buffer)
            loss += own.item() / s.ranks
        self._reduce()
        self.task.clip_gradients(self.model)
        self.optimiser.step()
        self.done += 1
        return loss

    def _reduce(self) -> None:
        warm = self.done < self.variant.warmup
        parts = [(self.elements, 1, UNCOMPRESSED, False)] if warm else self.parts
        if self.drift:
            self.drift.before(self.gradients)
        self.ranks.all_reduce(self.gradients, parts, self.residuals, average=True)
        if self.drift:
            self.drift.after(self.gradients[0])


def rearranged(flat: Tensor, old: list[nn.Parameter], new: list[nn.Parameter]) -> Tensor:
    pieces = dict(zip(old, flat.split([p.numel() for p in old]), strict=True))
    return torch.cat([pieces[parameter] for parameter in new])


def run(settings: Settings) -> dict:
    """Trains and returns the figures, ready for JSON. A loss that is not finite ends it early."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    training = Training(settings)
    task = training.task
    curve: dict[str, list] = {"step": [], "metric": [], "loss": [], "drift": []}
    loss = math.nan
    while training.done < settings.steps:
        loss = training.step()
        if not math.isfinite(loss):
            break
        marks = (settings.equal_steps, settings.steps)
        if training.done % task.evaluate_every == 0 or training.done in marks:
            curve["step"].append(training.done)
            curve["metric"].append(task.metric(training.model))
            curve["loss"].append(loss)
            if training.drift:
                curve["drift"].append(training.drift.value(training.residuals))
    # Each rank sends and receives everything except its own share, twice.
    plain = 2 * (settings.ranks - 1) * training.elements * 4 * training.done
    return {
        "curve": curve,
        "diverged": not math.isfinite(loss),
        "wire_ratio": plain / training.ranks.bytes_sent(),
        "parameters": training.elements,
        "seconds": time.perf_counter() - start,
    }
