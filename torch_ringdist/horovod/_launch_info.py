"""Finds rank and size of this process in the variables of launchers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from torch_ringdist._errors import ArgumentError
from torch_ringdist._launch.addresses import USUAL_PORT
from torch_ringdist.elastic import _settings as elastic_settings
from torch_ringdist.elastic._settings import RENDEZVOUS


@dataclass(frozen=True)
class LaunchInfo:
    """Describes how this rank was launched.

    Attributes:
        rank, size: rank and size of the job.
        local_rank, local_size: the same among the ranks of its host; None if the launcher does not
            set them.
        address, port: address for rank 0's store.
        has_own_store: the store there is one of ringdist's own, not a TCPStore.
    """

    rank: int
    size: int
    local_rank: int | None
    local_size: int | None
    address: str
    port: int
    has_own_store: bool = False


# Variables with rank, size, local rank and local size. The first launcher with a rank counts.
# Horovod's own launchers and torchrun precede those that may have started them.
_LAUNCHERS = {
    "Horovod": ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "OpenMPI": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "Slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
}


def launched(environment: Mapping[str, str] | None = None) -> LaunchInfo:
    """Returns the launch info of this process. Without variables of a launcher it is a job of one
    rank.

    Raises:
        ArgumentError: a variable is not a number, a rank is not below its size, or the address of
            rank 0 is missing for ranks on several hosts.
    """
    env = os.environ if environment is None else environment
    if is_elastic(env):  # a job of one rank until it trains
        local_rank, local_size = (number_of(env, one) for one in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
        place = elastic_settings.address(RENDEZVOUS, env[RENDEZVOUS])
        return LaunchInfo(0, 1, local_rank, local_size, *place)
    for launcher, names in _LAUNCHERS.items():
        rank, size = (number_of(env, name) for name in names[:2])
        if rank is None or size is None:
            continue
        if not 0 <= rank < size:
            raise ArgumentError(
                f"ringdist: horovod.init(): {names[0]}={rank} and {names[1]}={size}, of "
                f"{launcher}: a rank must be at least 0 and below the size"
            )
        local_rank, local_size = (number_of(env, name) for name in names[2:])
        address = _address(env, launcher, alone=size == 1 or local_size == size)
        return LaunchInfo(rank, size, local_rank, local_size, address, _port(env))
    return LaunchInfo(0, 1, 0, 1, "127.0.0.1", 0)


def is_elastic(environment: Mapping[str, str] | None = None) -> bool:
    """Returns True if the number of ranks may change (ringdistrun --min-np, python -m
    torch_ringdist run)."""
    return RENDEZVOUS in (os.environ if environment is None else environment)


def number_of(env: Mapping[str, str], name: str) -> int | None:
    """Returns the number in a variable, or None if it is not set. Raises ArgumentError if it is not
    a number."""
    text = env.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"\d+", text):
        raise ArgumentError(f"ringdist: horovod.init(): {name} must be a number, got {text!r}")
    return int(text)


def _port(env: Mapping[str, str]) -> int:
    port = number_of(env, "MASTER_PORT")
    return USUAL_PORT if port is None else port


def _address(env: Mapping[str, str], launcher: str, alone: bool) -> str:
    if address := env.get("MASTER_ADDR"):
        return address
    if alone:
        return "127.0.0.1"
    hosts = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST")
    if launcher == "Slurm" and hosts:
        return first_host(hosts)
    raise ArgumentError(
        "ringdist: horovod.init(): set MASTER_ADDR (and MASTER_PORT, "
        f"{USUAL_PORT} if not set) to the host of rank 0: {launcher} has started ranks on several "
        "hosts and does not say where it is"
    )


def first_host(hosts: str) -> str:
    """Returns the first host of a Slurm list: "node003" for "node[003-005,9],other"."""
    found = re.match(r"([^,\[]+)(?:\[(\w+)[^\]]*\])?([^,\[]*)", hosts)
    if not found:
        raise ArgumentError(f"ringdist: horovod.init(): no list of hosts: {hosts!r}")
    return "".join(part or "" for part in found.groups())
