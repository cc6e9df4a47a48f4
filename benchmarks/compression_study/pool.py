"""Executes runs that are not recorded yet, in one or two processes, with a progress bar."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from tqdm import tqdm

from benchmarks.compression_study.records import Records
from benchmarks.compression_study.tasks import TASKS
from benchmarks.compression_study.training import Settings, run
from benchmarks.lifetime import end_with_parent

BAR = "{desc}: {percentage:3.0f}% |{bar}| {elapsed}, {remaining} to go{postfix}"


def cost(settings: Settings) -> float:
    return TASKS[settings.task].cost * settings.steps * max(8, settings.batch) / 32


def run_all(wanted: Sequence[Settings], records: Records, jobs: int, title: str) -> None:
    """Completes `records` with all wanted runs. Passes on exceptions of runs; finished runs are
    kept."""
    missing = [settings for settings in dict.fromkeys(wanted) if records.find(settings) is None]
    missing.sort(key=cost, reverse=True)
    if not missing:
        return
    # Threads of a Context do not survive a fork.
    spawn = multiprocessing.get_context("spawn")
    total = sum(map(cost, missing))
    with (
        ProcessPoolExecutor(jobs, spawn, end_with_parent, (os.getpid(),)) as pool,
        tqdm(total=total, desc=title, bar_format=BAR) as bar,
    ):
        try:
            futures = {pool.submit(run, settings): settings for settings in missing}
            for number, future in enumerate(as_completed(futures), start=1):
                records.add(futures[future], future.result())
                bar.set_postfix_str(f"{number} of {len(missing)} runs", refresh=False)
                bar.update(cost(futures[future]))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
