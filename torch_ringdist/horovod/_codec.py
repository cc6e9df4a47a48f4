"""Codecs (docs/reference/codecs.md) for the gradients of a DistributedOptimizer."""

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


AUTO = "auto"  # automatic choice of codec


class Codec:
    """Compression settings of a DistributedOptimizer; Compression.codec() creates it."""

    def __init__(self, settings: Settings, model: nn.Module | None = None) -> None:
        settings.check(model)
        if settings.codec != AUTO:
            native = _native.load()
            native.check_codec("compression", settings.codec, 2, settings.error_feedback)
        self.settings = settings
        self._owners = {} if model is None else _rules.owners_in(model)

    # Returns the rule of each named parameter.
    def rules_of(self, named: Iterable[tuple[str, Tensor]], smallest: int) -> list[_rules.Rule]:
        return _rules.resolve_named(named, self._owners, self.settings.rules, smallest)

    def __deepcopy__(self, memo: dict[int, Any]) -> Codec:
        return self

    def __reduce__(self) -> Any:  # a copy in another process has other modules
        return Codec, (self.settings.without_objects(),)

    def __repr__(self) -> str:
        return f"Compression.codec({self.settings.codec!r})"


@takes(Settings)
def codec_for(model: nn.Module | None, settings: Settings) -> Codec:
    """Returns settings for compression= of DistributedOptimizer, as in
    torch_ringdist.ddp.compress().

    Args:
        model: identifies parameters of norms and embeddings. Norms stay uncompressed. If None,
            one-dimensional parameters stay uncompressed.
        {settings}

    Raises:
        TypeError, ValueError: an argument that is not accepted.
    """
    return Codec(settings, model)


class OptimizerCompression(CompressState):
    """Compression state of one optimizer's gradients, available as optimizer.compression.

    It has a group of its own. state_dict() and load_state_dict() are for checkpoints, stats()
    reports the savings.
    """

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
        """Sets step count and loss scale to those of the most advanced rank. All ranks call it,
        because a rank may have joined or lost a step."""
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
        """Starts averaging a bucket in place and returns a Future."""
        return self._bind().run_bucket(index, count, buffer, parameters)
