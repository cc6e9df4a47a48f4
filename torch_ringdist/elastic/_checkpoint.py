"""Saves a State to files and loads it.

A file has the tensors, and everything else as a message, so nothing is unpickled. Only with
State(trust_members=True) a message may contain pickles.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import uuid
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from torch_ringdist._errors import ArgumentError
from torch_ringdist._printable import printable
from torch_ringdist._tensor_meta import TensorMeta
from torch_ringdist.elastic import _log, _messages, _rank_state
from torch_ringdist.elastic._parts import Buffers
from torch_ringdist.elastic._settings import JOB

if TYPE_CHECKING:
    from torch_ringdist.elastic._state import State

_TRAINING = r"(?:([\w.-]+)-)?[0-9a-f]{8}"
_FOLDER = re.compile(rf"step-(\d+)(?:-({_TRAINING}))?")
_DEFAULT_JOB = "default"
_FILE = "state.pt"  # the file of a saved state, for torch.load(weights_only=True)
_OUTLINE = "ringdist"  # key of everything except the tensors
_VERSION = 2
_PICKLED = 1  # version of the pickles that torch.distributed.checkpoint wrote
_NO_TRAINING = "0" * 8  # an id, where none is needed
_LONGEST = 4096  # characters of an error that rank 0 reports


@dataclass(frozen=True)
class Saved:
    """A folder that save() has written, described by its name. Its file times are not those of the
    state."""

    steps: int
    training: str  # id of the training; empty outside of elastic.run
    job: str  # name given to the launcher
    folder: Path


def new_training() -> str:
    """Returns a new training id. It contains the name of the job, unless that is the default."""
    job, mark = _job(), uuid.uuid4().hex[:8]
    return mark if job in ("", _DEFAULT_JOB) else f"{job}-{mark}"


def check_training(text: Any) -> None:
    """Raises ValueError unless the value is a training id, which names folders."""
    if type(text) is not str or not re.fullmatch(_TRAINING, text):
        raise ValueError("no id of a training")


def saved_in(folder: str | os.PathLike[str]) -> list[Saved]:
    """Returns the saved states of this process' job, most steps last; without a job, those of all
    jobs."""
    return [one for one in _saved_by_all(folder) if _job() in ("", one.job)]


def save(state: State, folder: str | os.PathLike[str]) -> str:
    """Implements State.save()."""
    mark = f"-{state._training}" if state._training else ""
    target = Path(folder) / f"step-{state.steps:09d}{mark}"
    if target.parent != Path(folder):
        raise ArgumentError(
            f"ringdist: State.save: the id of the training, {state._training!r}, must be the name "
            "of a file"
        )
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
        check = _messages.check_text
        problem = _messages.broadcast(problem[:_LONGEST], 0, "the result of a write", check)
    if problem:
        raise RuntimeError(
            f"ringdist: State.save: rank 0 could not write {target}: {printable(problem)}"
        )
    return str(target)


def load(state: State, folder: str | os.PathLike[str]) -> bool:
    """Implements State.load()."""
    saved_state = _chosen(Path(folder))
    if saved_state is None:
        return False
    source, training = saved_state.folder, saved_state.training
    branches = any(
        one.training == training and one.steps > saved_state.steps
        for one in saved_in(source.parent)
    )
    saved, tensors = _read(state, source)
    state._look()
    theirs, ours = saved["terms"], _terms(state)
    for name in sorted({*theirs, *ours}):
        if theirs.get(name) != ours.get(name):
            raise ArgumentError(
                f"ringdist: State.load: {source} differs from this State in {name}: saved "
                f"{theirs.get(name, 'without it')!r}, here {ours.get(name, 'without it')!r}"
            )
    _refuse_damaged(state, saved, tensors, source)
    whole = _messages.with_tensors({name: saved[name] for name in ("parts", "owed")}, tensors)
    # Outside of elastic.run a training has no id, so it gets one when it begins.
    state._replace(whole["parts"], saved["steps"], None if branches else training or None)
    state._residuals.replace(whole["owed"])
    where = os.path.abspath(source)
    _log.event("loaded", f"loaded step {state.steps} from {where}", steps=state.steps, where=where)
    return True


def resume(state: State, folder: Path | None) -> None:
    """Loads the state that --resume requests, unless the script has loaded one."""
    if folder is not None and not state.steps and not load(state, folder):
        _log.event("nothing_saved", f"--resume: {folder} has no state of this job")


def warn_of_ignored(folder: Path | None, steps: int) -> None:
    """Warns if training begins although a state with more steps is saved."""
    saved = saved_in(folder) if folder is not None else []
    if saved and saved[-1].steps > steps:
        where = str(saved[-1].folder)
        text = f"WARNING: training begins at step {steps}, and {where} is ignored. Started with "
        text += "--resume (RINGDIST_RESUME=1), it goes on from there"
        _log.event("ignored", text, where=where)


def _chosen(folder: Path) -> Saved | None:
    """Returns `folder` itself if save() wrote it; else the state with the most steps in it.

    Raises:
        ArgumentError: the folder has states of several trainings.
    """
    if one := _saved_at(folder):
        return one
    newest = {one.training: one for one in saved_in(folder)}
    if not newest and (others := sorted({one.job for one in _saved_by_all(folder)})):
        text = f"{folder} has states of {', '.join(others)}; this is job {_job()} (--job)"
        _log.event("other_jobs", text)
    if len(newest) > 1:
        names = " and ".join(sorted(one.folder.name for one in newest.values()))
        raise ArgumentError(
            f"ringdist: State.load: {folder} has states of {len(newest)} trainings, which do not "
            f"follow each other: {names}. Load the folder that is meant, or move the others away"
        )
    return next(iter(newest.values()), None)


# Returns the saved states of all jobs in the folder, by steps.
def _saved_by_all(folder: str | os.PathLike[str]) -> list[Saved]:
    found = [one for path in Path(folder).glob("*") if (one := _saved_at(path))]
    return sorted(found, key=lambda one: one.steps)


# Returns the saved state in that folder, or None if save() did not write it.
def _saved_at(path: Path) -> Saved | None:
    if not (name := _FOLDER.fullmatch(path.name)) or not path.is_dir():
        return None
    return Saved(int(name[1]), name[2] or "", name[3] or _DEFAULT_JOB, path)


def _job() -> str:
    """Returns the job name as used in folder names; empty without a launcher."""
    return re.sub(r"[^\w.-]", "_", os.environ.get(JOB, ""))


@dataclass(frozen=True)
class Key:
    """Takes the place of a tensor in a pickle of an earlier version. Pickles name this class."""

    name: str


def _terms(state: State) -> dict[str, str]:
    """Returns the properties that must match between save and load: the entries and the sampler's
    order of indices."""
    terms = _rank_state.terms_of(state, 0)
    batches = ("sampler: global_batch", "sampler: batch_size", "sampler: drop_last")
    free = ("min_ranks", "trust_members", *batches)
    return {name: terms[name] for name in terms if name not in free}


def _mean_owed(state: State, together: bool) -> list[dict[str, Any]]:
    """Returns the sum of the ranks' shares of residuals. The result is valid on rank 0.

    Without elastic.run each rank has its whole residuals in place of shares.
    """
    owed = state._residuals.owed()
    if not together:
        return owed
    shapes = [{name: share.shape for name, share in one["residuals"].items()} for one in owed]
    everyone = _messages.gather(shapes, "shapes of its residuals", _check_shapes)
    for at, known in enumerate(_union(everyone)):
        # A new rank may have no residuals.
        mine = owed[at]["residuals"] if at < len(owed) else {}
        for name in sorted(known):
            share = mine.setdefault(
                name, torch.zeros(known[name], dtype=torch.float32, device="cpu")
            )
            dist.all_reduce(share)
            if not state._residuals.has_begun:
                share /= dist.get_world_size()
    return owed


# Raises ValueError unless the value is a list of shapes by name.
def _check_shapes(everything: Any) -> None:
    if type(everything) is not list or any(type(one) is not dict for one in everything):
        raise ValueError("no list of shapes by name")
    for one in everything:
        for name, shape in one.items():
            _messages.check_text(name)
            _messages.check_shape(shape, torch.float32.itemsize)


def _union(everyone: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Merges the lists of all ranks, position by position."""
    union: list[dict[str, Any]] = [{} for _ in max(everyone, key=len)]
    for mine in everyone:
        for one, known in zip(union, mine, strict=False):
            one.update(known)
    return union


# Writes the state to a temporary folder and renames it to `target`.
def _write(state: State, owed: list[dict[str, Any]], target: Path) -> None:
    parts = {
        name: Buffers.without_modes(tree) if isinstance(state._parts[name], Buffers) else tree
        for name, tree in state._given().items()
    }
    saved = {
        "version": _VERSION,
        "steps": state.steps,
        "terms": _terms(state),
        "parts": parts,
        "owed": owed,
    }
    text = _messages.encode(saved, "a checkpoint", state._trusts).decode()
    # torch.save() would write the whole memory of which a tensor is a part.
    tensors = [
        one.clone() if one.untyped_storage().nbytes() > one.nbytes else one
        for one in _messages.tensors_of(saved)
    ]
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        with open(draft / _FILE, "wb") as file:
            torch.save({_OUTLINE: text, "tensors": tensors}, file)
            file.flush()
            os.fsync(file.fileno())
        if target.is_dir():  # an older save of the same step
            os.replace(draft / _FILE, target / _FILE)
        else:
            draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # also after a lack of space


def _read(state: State, source: Path) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """Returns a saved state, with a TensorMeta in place of each tensor, and the tensors.

    Raises:
        ArgumentError: it contains pickles, and members are not trusted; or it is damaged.
    """
    file = source / _FILE
    if not file.exists() and (source / ".metadata").exists():
        if not state._trusts:
            _refuse_pickles(source, "the pickles of an earlier version of torch_ringdist")
        return _read_pickles(source)
    try:
        loaded = torch.load(file, map_location="cpu", weights_only=True)
        saved = _messages.decode(loaded[_OUTLINE].encode(), state._trusts)
        tensors = loaded["tensors"]
        if saved["version"] != _VERSION:
            raise ArgumentError(
                f"ringdist: State.load: {file} is of version {saved['version']}, this is {_VERSION}"
            )
    except pickle.UnpicklingError as error:
        kind = re.search(r"GLOBAL (\S+)", str(error))
        _refuse_pickles(file, kind[1] if kind else str(error), error)
    except _messages.PickleError as error:
        _refuse_pickles(file, error.kind, error)
    # torch.load() raises the last two for a file that ends too early.
    except (ValueError, TypeError, LookupError, AttributeError, RuntimeError, EOFError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise _damaged(file, error) from error
    return saved, tensors


def _refuse_pickles(where: Path, kind: str, error: Exception | None = None) -> NoReturn:
    raise ArgumentError(
        f"ringdist: State.load: {where} has {printable(kind)[:200]}, which would have to be "
        "unpickled, and that runs code of its writer. If nobody else can write there, load it with "
        "State(trust_members=True), and save it again without that"
    ) from error


def _damaged(where: Path, error: Exception) -> ArgumentError:
    return ArgumentError(f"ringdist: State.load: {where} is damaged: {printable(str(error))}")


def _refuse_damaged(
    state: State, saved: dict[str, Any], tensors: list[torch.Tensor], source: Path
) -> None:
    """Raises ArgumentError unless the State can take what was saved."""
    from torch_ringdist.elastic import _transfer  # it imports this module

    try:
        content = {"training": _NO_TRAINING, "trees": saved["parts"], "owed": saved["owed"]}
        _transfer.check_content(state, content)
        if type(saved["steps"]) is not int or saved["steps"] < 0:
            raise ValueError("no number of steps")
        _messages.check_tensors(content, tensors)
    except (ValueError, LookupError) as error:
        raise _damaged(source, error) from error


def _read_pickles(source: Path) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """Does what _read() does for a state that an earlier version has pickled."""
    # Imported late, because it takes a second.
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException

    def load(content: dict[str, Any]) -> dict[str, Any]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
            try:
                dcp.load(content, checkpoint_id=source, no_dist=True)
            except CheckpointException as error:  # not derived from Exception
                raise RuntimeError(str(error)) from error
        return content

    saved = pickle.loads(load({_OUTLINE: b""})[_OUTLINE])
    if saved["version"] != _PICKLED:
        raise ArgumentError(f"ringdist: State.load: {source} is of version {saved['version']}")
    empty = {
        name: torch.empty(shape, dtype=dtype, device="cpu")
        for name, shape, dtype in saved["tensors"]
    }
    tensors = load(empty)
    keys: list[str] = []

    def meta_of(leaf: Any) -> Any:
        if not isinstance(leaf, Key):
            return leaf
        keys.append(leaf.name)
        return TensorMeta.of(tensors[leaf.name])

    for name in ("parts", "owed"):
        saved[name] = pytree.tree_map(meta_of, saved[name])
    return saved, [tensors[name] for name in keys]
