"""Autotune: chooses fusion size and batches in flight by step times (HOROVOD_AUTOTUNE=1, on rank
0)."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import time
import warnings
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_ringdist.horovod import _global_state
from torch_ringdist.horovod._launch_info import number_of
from torch_ringdist.horovod._successive_halving import SuccessiveHalving

if TYPE_CHECKING:
    from torch_ringdist.horovod._gradients import Gradients

FUSION_BYTES = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
IN_FLIGHT = [1, 2, 4]
WARM_UP = 5  # number of steps before it begins

Setting = tuple[int, int]  # fusion_bytes, batches_in_flight


class Autotune:
    """Tunes the steps of one optimizer. The time of each step is a sample of the setting in use."""

    def __init__(self, group: _global_state.Group, key: str, log: Path | None, kept: Path) -> None:
        """Begins the search, or takes a result that was kept.

        Args:
            group: the group to tune.
            key: describes the job for which a result is valid.
            log: a CSV file to write, or None.
            kept: a file of results by key.
        """
        self._group, self._key, self._kept = group, key, kept
        settings = [(size, flying) for size in FUSION_BYTES for flying in IN_FLIGHT]
        if known := _read(kept).get(key):
            settings = [(int(known[0]), int(known[1]))]
        self._search: SuccessiveHalving[Setting] = SuccessiveHalving(settings)
        self._log = log
        self._steps = 0
        self._last: float | None = None
        if log is not None:
            header = ("step", "fusion_bytes", "batches_in_flight", "seconds", "state")
            self._write(header, "w")
        if self._search.is_over:
            self._use()
            self._note(self.setting, None, "kept")

    @property
    def setting(self) -> Setting:
        return self._search.current

    @property
    def is_over(self) -> bool:
        return self._search.is_over

    def step(self, now: float) -> None:
        """Records that a step has ended at `now`, in seconds."""
        last, self._last = self._last, now
        self._steps += 1
        if self._search.is_over or last is None:
            return
        if self._steps < WARM_UP:
            return
        if self._steps == WARM_UP:
            return self._use()
        before = self.setting
        self._search.add(now - last)
        self._note(before, now - last, "sample")
        if self.setting != before or self.is_over:
            self._use()
        if self.is_over:
            self._note(self.setting, None, "best")
            _write(self._kept, self._key, self.setting)

    def _use(self) -> None:
        self._group.named.tune(*self.setting)

    def _note(self, setting: Setting, seconds: float | None, state: str) -> None:
        if self._log is not None:
            said = "" if seconds is None else f"{seconds:.6f}"
            self._write((self._steps, *setting, said, state), "a")

    def _write(self, row: tuple[Any, ...], mode: str) -> None:
        assert self._log is not None
        try:
            with self._log.open(mode, newline="") as file:
                csv.writer(file).writerow(row)
        except OSError as error:
            warnings.warn(f"ringdist: HOROVOD_AUTOTUNE_LOG: {error}; no log", stacklevel=2)
            self._log = None


def _read(path: Path) -> dict[str, list[int]]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(path.read_text())
        if isinstance(found, dict):
            return found
    return {}


def _write(path: Path, key: str, setting: Setting) -> None:
    """Keeps a result. If that fails, the next run searches again."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        temporary.write_text(json.dumps({**_read(path), key: setting}, indent=1) + "\n")
        temporary.replace(path)


def kept_in() -> Path:
    """Returns the file of results. Delete it to search again."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache, "torch_ringdist", "horovod-autotune.json")


_current: tuple[weakref.ref[_global_state.GlobalState], weakref.ref[Gradients], Autotune] | None = (
    None
)


def step(gradients: Gradients) -> None:
    """Records a step of an optimizer. Only the first optimizer after init() counts."""
    global _current
    if number_of(os.environ, "HOROVOD_AUTOTUNE") != 1:
        return
    world = _global_state.required()
    if world.me.rank != 0:
        return
    if _current is None or _current[0]() is not world:
        log = os.environ.get("HOROVOD_AUTOTUNE_LOG")
        elements = sum(p.numel() for p in gradients.names)
        key = f"{world.me.size} ranks, {world.where.hosts} hosts, {elements} elements"
        made = Autotune(world.whole, key, Path(log) if log else None, kept_in())
        _current = weakref.ref(world), weakref.ref(gradients), made
    if _current[1]() is None:  # another optimizer continues
        _current = _current[0], weakref.ref(gradients), _current[2]
    if _current[1]() is gradients:
        _current[2].step(time.monotonic())
