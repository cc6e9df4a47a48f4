"""Writes the latest operations of a job as files of PyTorch's flight recorder, for torchfrtrace.

The format is version 2.10 of FlightRecorder.hpp in torch/csrc/distributed/c10d, a pickled dict per
rank. Names begin with "gloo:", because torchfrtrace before torch 2.15 accepts only those of
PyTorch's own backends.
"""

from __future__ import annotations

import os
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

from torch_ringdist._snapshot import Op, Process, Snapshot

_VERSION = "2.10"
_PREFIX = "ringdist_rank_"
# Names of PyTorch's backends where they differ from those of torch.distributed's functions.
_NAMES = {"all_gather": "_all_gather_base", "reduce_scatter": "_reduce_scatter_base"}
_ALIKE = ("all_reduce", "broadcast", "reduce")  # input and output are the same tensor, or one lacks


def write(snapshot: Snapshot, folder: Path) -> list[Path]:
    """Writes a file for each rank, and returns the paths. Ranks that have not answered get a file
    without operations, so that torchfrtrace names them.

    Raises:
        OSError: the folder cannot be made, or a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = _names_of_groups(snapshot)
    config = _config(snapshot, names)
    out = []
    for process in snapshot.processes:
        if (rank := snapshot.ranks.get(process.context)) is None:
            continue
        dump = {
            "version": _VERSION,
            "pg_config": {names[one.id]: config[one.id] for one in process.groups},
            "pg_status": {},
            "entries": [_entry(one, process, names, config) for one in process.ops],
        }
        path = folder / f"{_PREFIX}{rank}"
        path.write_bytes(pickle.dumps(dump, protocol=2))
        out.append(path)
    return out


def _names_of_groups(snapshot: Snapshot) -> dict[str, str]:
    """Returns a name per group id. Where groups share a name, the id is appended."""
    ids = {one.id: one.name for process in snapshot.processes for one in process.groups if one.name}
    for process in snapshot.processes:
        for one in process.groups:
            ids.setdefault(one.id, one.id)
    uses = Counter(ids.values())
    return {id: name if uses[name] == 1 else f"{name}-{id}" for id, name in ids.items()}


def _config(snapshot: Snapshot, names: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Returns the members of each group, as ranks of the job."""
    members: dict[str, set[int]] = {}
    for process in snapshot.processes:
        if process.context in snapshot.ranks:
            for one in process.groups:
                members.setdefault(one.id, set()).add(snapshot.ranks[process.context])
    return {
        id: {"name": names[id], "desc": "undefined", "ranks": str(sorted(ranks))}
        for id, ranks in members.items()
    }


def _entry(op: Op, process: Process, names: dict[str, str], groups: dict[str, Any]) -> Any:
    name = _NAMES.get(op.name, op.name)
    if op.name == "send":
        name += f" {op.rank}->{op.peer}"
    elif op.name == "recv":
        name += f" {op.rank}<-{op.peer}"
    largest = max(op.input, op.output)
    sizes = (largest, largest) if op.name in _ALIKE else (op.input, op.output)
    shapes: list[list[list[int]]] = [[[]] if op.name == "barrier" else [[n]] for n in sizes]
    is_p2p = op.name in ("send", "recv")
    runs = op.ended_ns == 0
    stack = process.stack if runs else ()
    return {
        "record_id": op.record,
        "pg_id": 0,
        "process_group": (names.get(op.group, op.group), "undefined"),
        "collective_seq_id": op.number,
        "p2p_seq_id": op.record if is_p2p else 0,
        "op_id": op.record,
        "profiling_name": f"gloo:{name}",
        "time_created_ns": op.began_ns,
        "time_discovered_started_ns": op.began_ns,
        "time_discovered_completed_ns": op.ended_ns or None,
        "duration_ms": None if runs else (op.ended_ns - op.began_ns) / 1e6,
        "input_sizes": shapes[0],
        "input_dtypes": [op.dtype],
        "output_sizes": shapes[1],
        "output_dtypes": [op.dtype],
        "state": "started" if runs or op.failed else "completed",
        "retired": not runs,
        "timeout_ms": 0,
        "is_p2p": is_p2p,
        "frames": [
            {"name": one.function, "filename": os.fspath(one.file), "line": one.line}
            for one in stack
        ],
    }
