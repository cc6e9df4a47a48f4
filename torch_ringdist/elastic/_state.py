"""State: everything that training changes, kept across the loss of ranks."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from torch_ringdist._errors import ArgumentError, NotSupportedError
from torch_ringdist.elastic import _checkpoint, _group, _messages
from torch_ringdist.elastic._leave import Leave, leave_was_asked
from torch_ringdist.elastic._mutation_detector import MutationDetector
from torch_ringdist.elastic._parts import GuardedPart, Parameters, Part, RandomNumbers, Value
from torch_ringdist.elastic._residuals import Residuals
from torch_ringdist.elastic._sampler import Sampler
from torch_ringdist.elastic._snapshot import Snapshot
from torch_ringdist.elastic._state_parts import check_optimizers, check_value, parts_of

_RANDOM = "random numbers"


@dataclass(frozen=True)
class Change:
    """Describes a new generation, for State.on_change().

    Attributes:
        generation: number of changes of the members.
        rank, size: rank of this process, and number of ranks.
        steps: number of steps that all members have committed.
        lost: ranks that are no longer members, such as "rank 2 (died)", "(silent)" or "(left)".
        joined: ranks of the newcomers.
    """

    generation: int
    rank: int
    size: int
    steps: int
    lost: tuple[str, ...]
    joined: tuple[int, ...]


class State:
    """Holds all objects that a training loop changes; ``elastic.run`` keeps it equal on all ranks.

        state = elastic.State(module=net, optimizer=opt, sampler=sampler, epoch=0)

    Each entry is an attribute. It is a module, an optimizer, an object with state_dict() and
    load_state_dict() such as a scheduler, or a value. Values are numbers, texts and tensors, and
    may be assigned: ``state.epoch += 1``. If a step is undone, they are replaced by copies, so use
    them as state.NAME, not by another name. The states of random generators and the residuals of
    compression are always included. All ranks pass the same entries with the same shapes.

    Changes outside of a State are not undone when a step is repeated.

    One thread at a time.
    """

    def __init__(self, *, copy: bool = True, trust_members: bool = False, **entries: Any) -> None:
        """Takes the entries by name.

        Args:
            copy: copy parameters and the optimizer's state at each commit, so any step can be
                undone. False saves this memory and time. Then all collectives of a step must come
                before optimizer.step(). Otherwise a loss raises an ArgumentError that names the
                changed tensor. Writes through .data are not detected. An optimizer with its own
                state_dict() is always copied.
            trust_members: send and save values of other types than Python's and torch's plain ones,
                such as numpy.int64, as pickles. All ranks pass the same. A rank that unpickles runs
                code of the sender. So every process that can join the job can run code in all
                others, and so can one that writes to the files of save().
            entries: the entries by name.

        Raises:
            ArgumentError: an entry of an unsupported kind, a name that State itself uses, or a
                value, also in a state_dict(), that only trust_members=True sends. Also if an
                optimizer has a parameter that is in no entry.
            NotSupportedError: a sharded module (FSDP, DTensor), or a module on a GPU with
                copy=False.
        """
        for name in entries:
            if name in _OWN or name.startswith("_"):
                raise ArgumentError(
                    f"ringdist: State: {name!r} is a name of State's own; call the entry otherwise"
                )
        values = dict(entries)
        parts: dict[str, Part] = {}
        for name in values:
            parts.update(parts_of(name, values))
        if not copy:
            _refuse_devices(values)
        samplers = [one for one in values.values() if isinstance(one, Sampler)]
        if len(samplers) > 1:
            raise ArgumentError(f"ringdist: State: one Sampler at most, got {len(samplers)}")
        check_optimizers(values, parts)
        parts[_RANDOM] = RandomNumbers()
        put = super().__setattr__
        put("_values", values)
        put("_parts", parts)
        put("_sampler", samplers[0] if samplers else None)
        put("_parameters", [one for one in parts.values() if isinstance(one, Parameters)])
        put("_snapshots", {name: _snapshot_of(name, part, copy) for name, part in parts.items()})
        put("_residuals", Residuals())
        put("_callbacks", [])
        put("_trusts", trust_members)
        put("_steps", 0)
        put("_runs", False)  # True while elastic.run may call functions of the user
        put("_training", None)  # id of the training, as in _checkpoint.Saved
        if self._sampler is not None and isinstance(values.get("epoch"), int):
            self._sampler.follow(lambda: values["epoch"])
        self._take()
        self._refuse_unknown()

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        if name in values:
            return values[name]
        raise AttributeError(f"this State has no entry {name!r}; it has {', '.join(values)}")

    def __setattr__(self, name: str, value: Any) -> None:
        part = self._parts.get(name)
        if part is None:
            raise AttributeError(
                f"this State has no entry {name!r}: name it when the State is made; "
                f"it has {', '.join(self._values)}"
            )
        if not isinstance(part, Value):
            raise AttributeError(
                f"entry {name!r} of this State is a {type(self._values[name]).__name__}, which can "
                "be changed, but not replaced"
            )
        check_value(name, value)
        if not self._trusts:
            _messages.encode(value, name)
        self._values[name] = value

    def __repr__(self) -> str:
        return f"State({', '.join(self._values)}; {self._steps} steps)"

    @property
    def steps(self) -> int:
        """Number of committed steps."""
        return self._steps

    @property
    def weight(self) -> float:
        """Factor for this rank's mean loss, so that DDP's averaged gradients are those of a mean
        over the whole step.

        It is 1 without a sampler.
        """
        return 1.0 if self._sampler is None else self._sampler.weight()

    def commit(self, batches: int = 1) -> None:
        """Ends a step and keeps its changes. It does not communicate.

        Gradients are set to None, as by zero_grad(). A process that has received SIGTERM leaves the
        group here, and the call does not return.

        Args:
            batches: number of batches that the step took from the sampler. It is more than one with
                gradient accumulation.

        Raises:
            ArgumentError: the sampler has fewer batches left. Or a state_dict() has a value that
                only trust_members=True sends; steps 1, 2, 4, 8 and so on are checked.
            TypeError: `batches` is not a whole number.
            torch.distributed.DistBackendError: the State is on a GPU, and an operation that the
                step queued there has failed. The step does not count.
        """
        self._look()
        _group.await_devices(one for part in self._parameters for one in part.tensors())
        if self._sampler is not None:
            self._sampler.advance(batches)
        self._clear_gradients()
        self._residuals.take()
        for snapshot in self._snapshots.values():
            snapshot.take()
        super().__setattr__("_steps", self._steps + 1)
        if self._steps.bit_count() == 1:  # steps 1, 2, 4, 8, ...; later ones seldom have new types
            self._refuse_unknown()
        if leave_was_asked():
            raise Leave

    def compress(self, model: nn.parallel.DistributedDataParallel, *args: Any, **named: Any) -> Any:
        """Calls torch_ringdist.ddp.compress(model, ...) and keeps the residuals in this State.

        Residuals survive the generation. If a rank dies, its share is lost; if it leaves, it hands
        its share over. Newcomers start without residuals. Steps, the schedule and the loss scale
        continue. PowerSGD's factors, "auto" and guard start again.

        Models that are compressed together must be compressed in the same order in each generation.
        """
        from torch_ringdist import ddp

        handle = ddp.compress(model, *args, **named)
        self._residuals.add(handle)
        return handle

    def on_change(self, function: Callable[[Change], Any]) -> Callable[[Change], Any]:
        """Registers a function to call in each generation before the training function.

        It may, for instance, scale a learning rate by the number of ranks. Its changes of entries
        are part of the following step. Returns the function, so this method can be used as a
        decorator.
        """
        self._callbacks.append(function)
        return function

    def save(self, folder: str | os.PathLike[str]) -> str:
        """Writes the State of the last commit, except random generators, to a file for
        torch.load(weights_only=True).

        If there is a group, all its ranks call it, and rank 0 writes. The files replace the
        previous ones atomically.

        Returns:
            The path of a new folder in `folder`. Its name has the number of steps and, in
            elastic.run, --job of the launcher and the id of this training. load() keeps that id.

        Raises:
            torch.distributed.DistError: the group failed, as in any operation.
            RuntimeError: rank 0 could not write. All ranks raise it.
            ArgumentError: called between optimizer.step() and commit() with State(copy=False).
        """
        return _checkpoint.save(self, folder)

    def load(self, folder: str | os.PathLike[str]) -> bool:
        """Reads a state that save() has written; the number of ranks may differ.

        Each process calls it for itself before training. A process that joins a running group gets
        the group's state afterwards. The log has the name of the loaded folder. Train and eval mode
        and requires_grad of modules stay as they are.

        Args:
            folder: the folder given to save(), or a result of save(). From the former, the state
                with the most steps of the launcher's --job is loaded.

        Returns:
            True if there was a state.

        Raises:
            ArgumentError: there are states of several trainings that do not continue each other.
                Also if entries or shapes differ from this State, or the data's length, seed or
                shuffle from the sampler. Also if the file has pickles, and trust_members is False.
                Also if the training function runs.
        """
        if self._runs:
            raise ArgumentError(
                "ringdist: State.load: call it before the training function, which would return to "
                "the loaded state in each generation"
            )
        return _checkpoint.load(self, folder)

    # Functions for elastic.run.

    # Refreshes the lists of parameters of all modules.
    def _look(self) -> None:
        for part in self._parameters:
            part.look()

    # Copies the present contents of all parts.
    def _take(self) -> None:
        self._look()
        for snapshot in self._snapshots.values():
            snapshot.take()

    def _given(self) -> dict[str, Any]:
        """Returns the parts of the last commit that other ranks and checkpoints receive."""
        self._look()
        return {
            name: snapshot.tree()
            for name, snapshot in self._snapshots.items()
            if self._parts[name].given
        }

    def _refuse_unknown(self) -> None:
        """Raises ArgumentError if the last commit has a value that cannot be sent."""
        for name, tree in self._given().items() if not self._trusts else ():
            _messages.encode(tree, name)

    def _put_back(self, goes_on: bool = False) -> None:
        """Restores the last commit. `goes_on` is True within the same generation.

        Raises:
            ArgumentError: a change cannot be undone; nothing was restored.
        """
        self._look()
        if goes_on:
            self._residuals.put_back()
        else:
            self._residuals.fail()
        self._clear_gradients()
        for snapshot in self._snapshots.values():
            snapshot.check()
        for snapshot in self._snapshots.values():
            snapshot.put_back()

    # Starts a generation.
    def _begin(self, rank: int, size: int) -> None:
        super().__setattr__("_runs", True)
        self._look()
        self._residuals.begin(size)
        for snapshot in self._snapshots.values():
            snapshot.begin()
        if self._sampler is not None:
            self._sampler.begin(rank, size)

    # Ends the last generation.
    def _end(self) -> None:
        super().__setattr__("_runs", False)

    def _identify(self) -> str:
        """Returns the id of this training; the first call creates it."""
        if self._training is None:
            super().__setattr__("_training", _checkpoint.new_training())
        return self._training

    def _replace(self, trees: dict[str, Any], steps: int, training: str | None) -> None:
        """Replaces the contents by those that another rank had committed."""
        self._look()
        self._clear_gradients()
        for name, tree in trees.items():
            self._parts[name].write(tree)
        self._take()
        super().__setattr__("_steps", steps)
        super().__setattr__("_training", training)

    def _clear_gradients(self) -> None:
        for part in self._parameters:
            part.clear_gradients()


def _snapshot_of(name: str, part: Part, copies: bool) -> Snapshot | MutationDetector:
    if not copies and isinstance(part, GuardedPart) and part.can_be_guarded:
        return MutationDetector(name, part)
    return Snapshot(part)


def _refuse_devices(values: dict[str, Any]) -> None:
    for name, module in values.items():
        if isinstance(module, nn.Module) and any(one.is_cuda for one in module.parameters()):
            raise NotSupportedError(
                f"ringdist: State: {name} is on a GPU, where an operation that fails is noticed "
                "after optimizer.step() only: copy=False is for CPUs"
            )


# Entries must not have these names, which they would hide.
_OWN = frozenset(dir(State))
