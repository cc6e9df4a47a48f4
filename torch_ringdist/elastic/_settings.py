"""Settings of elastic.init() from its caller and from the launcher."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_ringdist import _address
from torch_ringdist._errors import ArgumentError
from torch_ringdist._units import LONGEST

if TYPE_CHECKING:
    from torch_ringdist._options import Options

# Variables that `python -m torch_ringdist run` sets. With another launcher, users set the first
# one.
RENDEZVOUS = "RINGDIST_RDZV"
START_RANKS = "RINGDIST_START_RANKS"
MIN_RANKS = "RINGDIST_MIN_RANKS"
MAX_RANKS = "RINGDIST_MAX_RANKS"
JOB = "RINGDIST_JOB"
RESUME = "RINGDIST_RESUME"  # "1" continues from the checkpoint folder
EVENTS = "RINGDIST_EVENTS"


@dataclass(frozen=True)
class Settings:
    """Checked settings of a job.

    Attributes:
        host, port: address of the store.
        is_own: the store is one of ringdist's own, not a TCPStore.
        min_ranks: with fewer ranks, training waits.
        start_ranks: number of ranks for the first step. After rejoin_timeout, min_ranks are enough.
        max_ranks: with this many ranks, further ones wait; 0 for no limit.
        rejoin_timeout: time limit for ranks to come, to be admitted and to agree.
        timeout: timeout of the group's operations.
        checkpoint: folder of saved states, or None.
        options: options of the group.
        job: name of the job in the store.
        resume: load the last saved state.
    """

    host: str
    port: int
    is_own: bool
    min_ranks: int
    start_ranks: int
    max_ranks: int
    rejoin_timeout: timedelta
    timeout: timedelta
    checkpoint: Path | None
    options: Options | None
    job: str
    resume: bool = False


def read(
    min_ranks: int | None,
    rejoin_timeout: float | timedelta,
    timeout: timedelta,
    checkpoint: str | os.PathLike[str] | None,
    options: Options | None,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Returns the checked settings. Raises ArgumentError or TypeError that names the argument or
    variable."""
    if not (text := environment.get(RENDEZVOUS)):
        raise ArgumentError(
            f"ringdist: elastic.init: {RENDEZVOUS} is not set, so nothing tells where the ranks "
            "meet. Launch with: python -m torch_ringdist run --nproc-per-node=4 script.py"
        )
    host, port, is_own = address(RENDEZVOUS, text)
    _warn_of_torchrun(environment)
    at_least = _count("min_ranks", min_ranks) if min_ranks is not None else None
    least = at_least or _variable(environment, MIN_RANKS, 1)
    most = _variable(environment, MAX_RANKS, 0)
    if most and most < least:
        raise ArgumentError(
            f"ringdist: elastic.init: min_ranks={least} is more than --max-ranks={most} allows"
        )
    start = _variable(environment, START_RANKS, 1)
    if most and start > most:
        raise ArgumentError(
            f"ringdist: elastic.init: {START_RANKS}={start} is more than {MAX_RANKS}={most} allows"
        )
    resume = environment.get(RESUME) == "1"
    if resume and checkpoint is None:
        raise ArgumentError(
            "ringdist: elastic.init: --resume reads from the folder `checkpoint`, which is None"
        )
    return Settings(
        host=host,
        port=port,
        is_own=is_own,
        min_ranks=least,
        start_ranks=max(least, start),
        max_ranks=most,
        rejoin_timeout=_duration("rejoin_timeout", rejoin_timeout),
        timeout=_duration("timeout", timeout),
        checkpoint=None if checkpoint is None else Path(checkpoint),
        options=options,
        job=environment.get(JOB, "default"),
        resume=resume,
    )


def address(what: str, text: str) -> tuple[str, int, bool]:
    """Parses "host:port" of a TCPStore, or "ringdist://host:port" of a store of ringdist's own, for
    which the last result is True. Raises ArgumentError that calls it `what`."""
    place = _address.parse_store(text)
    if place is None or place[1] == 0:
        raise ArgumentError(
            f'ringdist: {what} must be "host:port" or "ringdist://host:port", got {text!r}'
        )
    return place


# Warns about several ranks under one torchrun, which ends all of them if one fails.
def _warn_of_torchrun(environment: Mapping[str, str]) -> None:
    ranks = environment.get("LOCAL_WORLD_SIZE", "1")
    if "TORCHELASTIC_RUN_ID" in environment and ranks != "1":
        warnings.warn(
            f"ringdist: elastic.init: {ranks} ranks under one torchrun: when one of them fails, it "
            "ends the others, too. Start a torchrun for each rank, or python -m torch_ringdist run",
            stacklevel=4,
        )


def _variable(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise ArgumentError(f"ringdist: {name} must be a whole number above 0, got {text!r}")
    return int(text)


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(
            f"ringdist: elastic.init: {name} must be a whole number, "
            f"got {value!r} of type {type(value).__name__}"
        )
    if value < 1:
        raise ArgumentError(f"ringdist: elastic.init: {name} must be 1 or more, got {value}")
    return value


def _duration(name: str, value: Any) -> timedelta:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            value = timedelta(seconds=value)
        except (OverflowError, ValueError):
            raise ArgumentError(
                f"ringdist: elastic.init: {name} must be at most {timedelta.max.days} days, "
                f"got {value} seconds"
            ) from None
    if not isinstance(value, timedelta):
        raise TypeError(
            f"ringdist: elastic.init: {name} must be seconds or a datetime.timedelta, "
            f"got {value!r} of type {type(value).__name__}"
        )
    if value <= timedelta(0):
        raise ArgumentError(f"ringdist: elastic.init: {name} must be above 0, got {value}")
    return min(value, LONGEST)
