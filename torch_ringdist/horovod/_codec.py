"""Codecs of docs/reference/codecs.md for the gradients of a DistributedOptimizer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from torch_ringdist import _native, _rules
from torch_ringdist._compress import CompressState
from torch_ringdist._settings import Settings, takes

if TYPE_CHECKING:
    from torch import Tensor, nn

    from torch_ringdist._C import ProcessGroupRing


AUTO = "auto"  # a choice among them


class Codec:
    """How a DistributedOptimizer's gradients are compressed: what Compression.codec() makes."""

    def __init__(self, settings: Settings, model: nn.Module | None = None) -> None:
        settings.check(model)
        if settings.codec != AUTO:
            native = _native.load()
            native.check_codec("compression", settings.codec, 2, settings.error_feedback)
        self.settings = settings
        self._owners = {} if model is None else _rules.owners_in(model)

    def rules_of(self, named: Iterable[tuple[str, Tensor]], smallest: int) -> list[_rules.Rule]:
        return _rules.resolve_named(named, self._owners, self.settings.rules, smallest)

    def __deepcopy__(self, memo: dict[int, Any]) -> Codec:
        return self

    def __reduce__(self) -> Any:  # other processes have other modules
        return Codec, (self.settings.without_objects(),)

    def __repr__(self) -> str:
        return f"Compression.codec({self.settings.codec!r})"


@takes(Settings)
def codec_for(model: nn.Module | None, settings: Settings) -> Codec:
    """For compression= of DistributedOptimizer: as torch_ringdist.ddp.compress does it.

    Args:
        model: says which parameters are of norms, which stay uncompressed, and of embeddings;
            None: those of one dimension stay uncompressed.
        {settings}

    Raises:
        TypeError, ValueError: an argument that is not accepted.
    """
    return Codec(settings, model)


class OptimizerCompression(CompressState):
    """Of the gradients of one optimizer, over a group of their own: optimizer.compression. Its
    state_dict() and load_state_dict() are for checkpoints, stats() says what was saved."""

    _all_buckets_come = True

    def __init__(self, backend: ProcessGroupRing, codec: Codec, names: dict[Tensor, str]) -> None:
        self._settings = codec.settings
        self._codec = codec
        self._named = [(name, p) for p, name in names.items()]
        self._group_backend = backend
        self._model, self._group, self._native = None, None, None
        self._shapes: dict[str, torch.Size] = {}
        self._bind()

    def _backend(self) -> Any:
        return self._group_backend

    def _resolve(self, smallest: int) -> list[_rules.Rule]:
        return self._codec.rules_of(self._named, smallest)

    def agree_on_steps(self) -> None:
        """All ranks call it: one that came, or has lost a step, counts as the furthest does."""
        state, group = self.state_dict(local=True), self._group_backend
        said = torch.zeros(group.size(), 2, dtype=torch.float64, device="cpu")
        own = said.new_tensor([state["steps"], state["scale"]])
        said[group.rank()] = own
        _native.load().sum_of_state(group, said)
        furthest = said[said[:, 0].argmax()]
        if not furthest.equal(own):
            steps, scale = furthest.tolist()
            self.load_state_dict({**state, "steps": int(steps), "scale": scale})

    def average(self, index: int, count: int, buffer: Tensor, parameters: list[Tensor]) -> Any:
        """A Future of the bucket, in place."""
        return self._bind().run_bucket(index, count, buffer, parameters)
