"""All that training changes, so that it outlives the loss of ranks."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from torch_ringdist._errors import ArgumentError, NotSupportedError
from torch_ringdist.elastic import _checkpoint, _group
from torch_ringdist.elastic._leave import Leave, leave_was_asked
from torch_ringdist.elastic._mutation_detector import MutationDetector
from torch_ringdist.elastic._parts import GuardedPart, Parameters, Part, RandomNumbers, Value
from torch_ringdist.elastic._residuals import Residuals
from torch_ringdist.elastic._sampler import Sampler
from torch_ringdist.elastic._snapshot import Snapshot
from torch_ringdist.elastic._state_parts import check_value, parts_of

_RANDOM = "random numbers"


@dataclass(frozen=True)
class Change:
    """What is different in a generation.

    Attributes:
        generation: how often the members have changed.
        rank, size: of this process, and of the group.
        steps: committed so far, by all members.
        lost: ranks that are no members any more, as "rank 2 (died)", "(silent)" or "(left)".
        joined: the ranks of those who are new.
    """

    generation: int
    rank: int
    size: int
    steps: int
    lost: tuple[str, ...]
    joined: tuple[int, ...]


class State:
    """What a training loop works on; ``elastic.run`` keeps it the same on all ranks.

        state = elastic.State(module=net, optimizer=opt, sampler=sampler, epoch=0)

    Each entry is an attribute: a module, an optimizer, anything with state_dict() and
    load_state_dict() (learning rate schedulers, a GradScaler), and numbers, texts and tensors,
    which may be set: ``state.epoch += 1``. The states of random generators and what compression
    owes belong to it without being named. All ranks give the same entries, with the same shapes.

    What is changed outside of a State is not undone when a step is repeated.

    One thread at a time.
    """

    def __init__(self, *, copy: bool = True, **entries: Any) -> None:
        """Take the entries by name.

        Args:
            copy: keep a copy of parameters and of the optimizer's state at each commit, so that a
                step can be undone whatever it has changed. False saves that memory and time, where
                all collectives of a step come before optimizer.step(): else, after a loss, an
                ArgumentError says which tensor has changed (what is written by way of .data is not
                noticed). An optimizer with a state_dict() of its own is copied all the same.
            entries: by name.

        Raises:
            ArgumentError: an entry of a kind that is not served, a name that State has itself.
            NotSupportedError: a module that is sharded (FSDP, DTensor), or that is on a GPU with
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
        parts[_RANDOM] = RandomNumbers()
        put = super().__setattr__
        put("_values", values)
        put("_parts", parts)
        put("_sampler", samplers[0] if samplers else None)
        put("_parameters", [one for one in parts.values() if isinstance(one, Parameters)])
        put("_snapshots", {name: _snapshot_of(name, part, copy) for name, part in parts.items()})
        put("_residuals", Residuals())
        put("_callbacks", [])
        put("_steps", 0)
        put("_training", None)  # its id: see _checkpoint.Saved
        if self._sampler is not None and isinstance(values.get("epoch"), int):
            self._sampler.follow(lambda: values["epoch"])
        self._take()

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
        self._values[name] = value

    def __repr__(self) -> str:
        return f"State({', '.join(self._values)}; {self._steps} steps)"

    @property
    def steps(self) -> int:
        """Committed so far."""
        return self._steps

    @property
    def weight(self) -> float:
        """What this rank's loss, a mean over its batch, is multiplied with, so that the gradients
        that DDP averages are those of a mean over the whole step. 1 without a sampler."""
        return 1.0 if self._sampler is None else self._sampler.weight()

    def commit(self, batches: int = 1) -> None:
        """End a step: what it has changed counts from now on. Without communication.

        Gradients are set to None, as zero_grad() does. A process that was asked to end (SIGTERM)
        leaves the group here: the call does not return.

        Args:
            batches: how many the step has taken from the sampler; more than one where gradients
                are accumulated.

        Raises:
            ArgumentError: the sampler has no more.
            TypeError: batches is no whole number.
            torch.distributed.DistBackendError: the State is on a GPU, and an operation that the
                step has queued there has failed: the step does not count.
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
        if leave_was_asked():
            raise Leave

    def compress(self, model: nn.parallel.DistributedDataParallel, *args: Any, **named: Any) -> Any:
        """As torch_ringdist.ddp.compress(model, ...), with residuals that are this State's.

        What is owed survives the generation. A rank that dies takes its share with it; one that
        leaves hands it over; of those who come nothing is owed. Steps, the schedule and the loss
        scale go on; PowerSGD's factors, "auto" and guard begin anew.

        Models that are compressed together keep their order in each generation.
        """
        from torch_ringdist import ddp

        handle = ddp.compress(model, *args, **named)
        self._residuals.add(handle)
        return handle

    def on_change(self, function: Callable[[Change], Any]) -> Callable[[Change], Any]:
        """Calls it in each generation, before the training function is entered: say, to scale a
        learning rate by the number of ranks. What it changes in entries is part of the step that
        follows. Returns the function, so that it serves as a decorator."""
        self._callbacks.append(function)
        return function

    def save(self, folder: str | os.PathLike[str]) -> str:
        """Write all of it but the random generators, as of the last commit, with
        torch.distributed.checkpoint.

        All ranks of the group call it, where there is one; rank 0 writes. The new file set takes
        the place of the one before when it is whole.

        Returns:
            Where it is: a folder in `folder`, named by the number of steps and, in elastic.run, by
            the launcher's --job and an id of this training. load() keeps that id.

        Raises:
            torch.distributed.DistError: as any operation.
            RuntimeError: rank 0 could not write; on all ranks.
            ArgumentError: State(copy=False), between optimizer.step() and commit().
        """
        return _checkpoint.save(self, folder)

    def load(self, folder: str | os.PathLike[str]) -> bool:
        """Read what save() has written; the number of ranks may be another one.

        Called before training, by each process for itself. A process that joins a group at work
        gets the group's state afterwards. The log has the name of what is loaded.

        Args:
            folder: as given to save(): the state of the most steps is loaded, among those of the
                launcher's --job; or what save() has returned.

        Returns:
            Whether there was anything.

        Raises:
            ArgumentError: there are states of several trainings, of which none goes on from the
                others; entries or shapes differ from this State's, or the data's length, seed or
                shuffle from the sampler's.
        """
        return _checkpoint.load(self, folder)

    # What elastic.run uses.

    def _look(self) -> None:
        for part in self._parameters:
            part.look()

    def _take(self) -> None:
        self._look()
        for snapshot in self._snapshots.values():
            snapshot.take()

    def _given(self) -> dict[str, Any]:
        """As of the last commit: what other ranks, and checkpoints, are given, part by part."""
        self._look()
        return {
            name: snapshot.tree()
            for name, snapshot in self._snapshots.items()
            if self._parts[name].given
        }

    def _put_back(self, goes_on: bool = False) -> None:
        """As of the last commit; `goes_on`: in the same generation."""
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

    def _begin(self, rank: int, size: int) -> None:
        self._look()
        self._residuals.begin(size)
        for snapshot in self._snapshots.values():
            snapshot.begin()
        if self._sampler is not None:
            self._sampler.begin(rank, size)

    def _identify(self) -> str:
        """The id of this training, which is drawn when it begins."""
        if self._training is None:
            super().__setattr__("_training", _checkpoint.new_training())
        return self._training

    def _replace(self, trees: dict[str, Any], steps: int, training: str | None) -> None:
        """By what another rank had committed."""
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
    guards = not copies and isinstance(part, GuardedPart) and part.can_be_guarded
    return MutationDetector(name, part) if guards else Snapshot(part)


def _refuse_devices(values: dict[str, Any]) -> None:
    for name, module in values.items():
        if isinstance(module, nn.Module) and any(one.is_cuda for one in module.parameters()):
            raise NotSupportedError(
                f"ringdist: State: {name} is on a GPU, where an operation that fails is noticed "
                "after optimizer.step() only: copy=False is for CPUs"
            )


# Names of entries would hide them.
_OWN = frozenset(dir(State))
