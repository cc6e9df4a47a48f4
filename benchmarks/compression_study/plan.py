"""Selects the runs of the study."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.compression_study.pool import run_all
from benchmarks.compression_study.records import Records
from benchmarks.compression_study.tasks import TASKS
from benchmarks.compression_study.training import Settings
from benchmarks.compression_study.variants import UNCOMPRESSED, Variant

VARIANTS = (
    *("none", "fp16", "bf16", "fp8", "int8", "int4", "int2", "onebit", "topk:0.01"),
    *("int4/no-ef", "onebit/no-ef", "topk:0.01/no-ef"),
    *("onebit/warmup=30", "topk:0.01/warmup=30"),
)
# Limit for the steps of a slow codec, as a multiple of the uncompressed run.
PATIENCE = 3
# Few seeds, because drift is a sum over elements and differs little between seeds.
DRIFT_SEEDS = 2
# First seed for choosing the learning rate; the comparison of codecs uses others.
SWEEP_SEED = 1000


@dataclass(frozen=True)
class Cell:
    """A comparison. All its variants have the same learning rate and batches."""

    task: str
    optimiser: str
    batch: int
    steps: int
    seeds: int  # number of pairs per codec

    def owns(self, task: str, optimiser: str, batch: int) -> bool:
        return (self.task, self.optimiser, self.batch) == (task, optimiser, batch)


@dataclass(frozen=True)
class Scale:
    """Extent of the study."""

    sweep_seeds: int
    jobs: int


def sweep(cells: Sequence[Cell], scale: Scale, records: Records) -> dict[Cell, float]:
    """Returns each cell's best learning rate for the uncompressed run."""

    def settings(cell: Cell, lr: float) -> list[Settings]:
        seeds = range(SWEEP_SEED, SWEEP_SEED + scale.sweep_seeds)
        return [settings_of(cell, lr, UNCOMPRESSED, seed) for seed in seeds]

    def merit(cell: Cell, lr: float) -> float:
        task = TASKS[cell.task]
        results = [records.find(s) for s in settings(cell, lr)]
        if any(r is None or r["diverged"] for r in results):
            return float("-inf")
        return task.better * statistics.fmean(r["curve"]["metric"][-1] for r in results if r)

    rates = {cell: TASKS[cell.task].learning_rates[cell.optimiser] for cell in cells}
    wanted = [s for cell in cells for lr in rates[cell] for s in settings(cell, lr)]
    run_all(wanted, records, scale.jobs, "learning rates")
    return {cell: max(rates[cell], key=lambda lr: merit(cell, lr)) for cell in cells}


def settings_of(cell: Cell, lr: float, text: str, seed: int) -> Settings:
    variant = Variant.parse(text)
    steps = cell.steps * (PATIENCE if variant.slow else 1)
    drift = seed < DRIFT_SEEDS and variant.family in ("int4", "int2", "onebit", "topk")
    return Settings(
        *(cell.task, cell.optimiser, lr, text, seed, steps, cell.steps, cell.batch), drift=drift
    )


def study(
    rates: dict[Cell, float], variants: Iterable[str], scale: Scale, records: Records
) -> dict[tuple[Cell, str], list[dict]]:
    """Returns the results of all seeds in order, by cell and variant."""
    wanted = {
        (cell, text): [settings_of(cell, lr, text, seed) for seed in range(cell.seeds)]
        for cell, lr in rates.items()
        for text in dict.fromkeys([UNCOMPRESSED, *variants])
    }
    flat = [settings for runs in wanted.values() for settings in runs]
    run_all(flat, records, scale.jobs, "training")
    return {key: [r for s in runs if (r := records.find(s))] for key, runs in wanted.items()}
