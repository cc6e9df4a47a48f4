"""A State in files, by torch.distributed.checkpoint."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from torch_ringdist._errors import ArgumentError
from torch_ringdist.elastic import _standing

if TYPE_CHECKING:
    from torch_ringdist.elastic._state import State

_FOLDER = re.compile(r"step-(\d+)")
_OUTLINE = "ringdist"  # the key of all but the tensors
_VERSION = 1


def save(state: State, folder: str | os.PathLike[str]) -> str:
    """As State.save()."""
    target = Path(folder) / f"step-{state.steps:09d}"
    together = dist.is_initialized()
    state._look()
    for snapshot in state._snapshots.values():
        snapshot.check()
    owed = _mean_owed(state, together)
    problem = ""
    if not together or dist.get_rank() == 0:
        try:
            _write(state, owed, target)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
    if together:
        problems: list[Any] = [problem]
        dist.broadcast_object_list(problems, src=0)
        problem = problems[0]
    if problem:
        raise RuntimeError(f"ringdist: State.save: rank 0 could not write {target}: {problem}")
    return str(target)


def load(state: State, folder: str | os.PathLike[str]) -> bool:
    """As State.load()."""
    source = newest(folder)
    if source is None:
        return False
    loaded: dict[str, Any] = {_OUTLINE: b""}
    _alone("load", loaded, source)
    saved = pickle.loads(loaded[_OUTLINE])
    state._look()
    if saved["version"] != _VERSION:
        raise ArgumentError(
            f"ringdist: State.load: {source} is of version {saved['version']}, this is {_VERSION}"
        )
    theirs, ours = saved["terms"], _terms(state)
    for name in sorted({*theirs, *ours}):
        if theirs.get(name) != ours.get(name):
            raise ArgumentError(
                f"ringdist: State.load: {source} differs from this State in {name}: saved "
                f"{theirs.get(name, 'without it')!r}, here {ours.get(name, 'without it')!r}"
            )
    tensors = {
        name: torch.empty(shape, dtype=dtype, device="cpu")
        for name, shape, dtype in saved["tensors"]
    }
    _alone("load", tensors, source)

    def tensor_of(leaf: Any) -> Any:
        return tensors[leaf.name] if isinstance(leaf, Key) else leaf

    state._replace(pytree.tree_map(tensor_of, saved["parts"]), saved["steps"])
    state._residuals.replace(pytree.tree_map(tensor_of, saved["owed"]))
    return True


def newest(folder: str | os.PathLike[str]) -> Path | None:
    """What save() has written last, which need not be of the most steps."""
    found = [one for one in Path(folder).glob("*") if _FOLDER.fullmatch(one.name)]
    return max(found, default=None, key=lambda one: one.stat().st_mtime_ns)


@dataclass(frozen=True)
class Key:
    """Of a tensor in the files, in its place among the rest."""

    name: str


def _terms(state: State) -> dict[str, str]:
    """What must be the same where it is loaded: entries, and which index is which."""
    terms = _standing.terms_of(state, 0)
    free = ("min_ranks", "sampler: global_batch", "sampler: batch_size", "sampler: drop_last")
    return {name: terms[name] for name in terms if name not in free}


def _mean_owed(state: State, together: bool) -> list[dict[str, Any]]:
    """What all ranks together owe to the mean; rank 0 has it."""
    owed = state._residuals.owed()
    if not together:
        return owed
    shapes = [{name: share.shape for name, share in one["residuals"].items()} for one in owed]
    for at, known in enumerate(_union(_standing.gather(shapes))):
        # A rank that has just come may owe nothing, of nothing.
        mine = owed[at]["residuals"] if at < len(owed) else {}
        for name in sorted(known):
            share = mine.setdefault(
                name, torch.zeros(known[name], dtype=torch.float32, device="cpu")
            )
            dist.all_reduce(share)
    return owed


def _union(everyone: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Of the ranks' lists, place by place."""
    union: list[dict[str, Any]] = [{} for _ in max(everyone, key=len)]
    for mine in everyone:
        for one, known in zip(union, mine, strict=False):
            one.update(known)
    return union


def _write(state: State, owed: list[dict[str, Any]], target: Path) -> None:
    tensors: dict[str, torch.Tensor] = {}

    def key_of(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        key = Key(f"tensor {len(tensors)}")
        tensors[key.name] = leaf
        return key

    parts = pytree.tree_map(key_of, state._given())
    saved = {
        "version": _VERSION,
        "steps": state.steps,
        "terms": _terms(state),
        "parts": parts,
        "owed": pytree.tree_map(key_of, owed),
        "tensors": [(name, one.shape, one.dtype) for name, one in tensors.items()],
    }
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    # As one value: dcp makes keys of what is in dicts and lists.
    _alone("save", {_OUTLINE: pickle.dumps(saved), **tensors}, draft)
    old = draft.with_name(f"{draft.name}.old")
    if target.exists():  # of the same steps
        target.rename(old)
    draft.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _alone(what: str, content: dict[str, Any], folder: Path) -> None:
    """torch.distributed.checkpoint's load or save, in this process, whatever group there is."""
    # Not when a process starts: it takes a second, in which others may wait for it.
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        try:
            getattr(dcp, what)(content, checkpoint_id=folder, no_dist=True)
        except CheckpointException as error:  # which is no Exception
            raise RuntimeError(str(error)) from error
