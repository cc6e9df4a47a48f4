"""The compared ways to exchange gradients, as text:

    gloo, ringdist                  uncompressed, DDP as it is
    ringdist:int4                   compressed inside the collective, torch_ringdist.ddp.compress;
                                    also ringdist:powersgd:4 and ringdist:auto
    gloo+fp16                       PyTorch's hooks, over either backend: a cast,
    gloo+powersgd:RANK@START        PowerSGD, uncompressed before that step,
    gloo+local:PERIOD@START         post-local SGD: from that step on, no gradients are exchanged
                                    and parameters are averaged every so many steps

START is a step, and PERIOD a number of steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

BACKENDS = ("gloo", "ringdist")
MIN_POWERSGD_START = 2  # limit of PyTorch's error feedback

_FORM = re.compile(
    r"(?P<backend>gloo|ringdist)"
    r"(?::(?P<codec>.+)|\+(?P<hook>fp16|powersgd|local)(?::(?P<amount>\d+)@(?P<start>\d+))?)?"
)


@dataclass(frozen=True)
class Candidate:
    """A way to exchange gradients. It is hashable, and equal to candidates with the same text."""

    text: str
    backend: str
    codec: str = ""  # codec inside the collective
    hook: str = ""  # hook of PyTorch: fp16, powersgd or local
    amount: int = 0  # rank of PowerSGD or period of local SGD
    start: int = 0  # first step that differs from plain DDP

    @classmethod
    def parse(cls, text: str) -> Candidate:
        """Parses the text. Raises ValueError."""
        match = _FORM.fullmatch(text)
        if not match:
            raise ValueError(
                f"candidate {text!r}: expected gloo or ringdist, then nothing, +fp16, "
                "+powersgd:RANK@START or +local:PERIOD@START; or ringdist:CODEC"
            )
        found = cls(
            text,
            match["backend"],
            match["codec"] or "",
            match["hook"] or "",
            int(match["amount"] or 0),
            int(match["start"] or 0),
        )
        found._check()
        return found

    def _check(self) -> None:
        if self.codec and self.backend != "ringdist":
            raise ValueError(f"candidate {self.text!r}: only ringdist has codecs")
        if (self.hook in ("powersgd", "local")) != (self.amount > 0):
            raise ValueError(
                f"candidate {self.text!r}: powersgd and local need :NUMBER@START, fp16 takes none"
            )
        if self.hook == "powersgd" and self.start < MIN_POWERSGD_START:
            raise ValueError(f"candidate {self.text!r}: PowerSGD starts at step 2 or later")

    @property
    def compresses(self) -> bool:
        return bool(self.codec and self.codec != "none") or self.hook in ("fp16", "powersgd")

    @property
    def ours(self) -> bool:
        return self.backend == "ringdist" and not self.hook

    def averages_at(self, step: int) -> bool:
        """Returns True if all ranks have the same parameters after that step, counted from 0."""
        return self.hook != "local" or step < self.start or (step - self.start) % self.amount == 0


class AbsentError(Exception):
    """The installed version does not support this candidate; the text has the reason."""


@dataclass
class Attached:
    """Additions of a candidate to a model."""

    after_step: Callable[[], None] | None = None
    handle: Any = None  # result of torch_ringdist.ddp.compress

    def codec(self) -> str:
        """The present choice of "auto": one codec, or several separated by commas."""
        return ",".join(dict.fromkeys(self.handle.stats()["chosen"]))


def attach(
    candidate: Candidate, model: DistributedDataParallel, group: dist.ProcessGroup
) -> Attached:
    """Makes `model` of `group` exchange its gradients like the candidate. Raises AbsentError on all
    ranks."""
    if candidate.codec:
        return Attached(handle=_compress(model, candidate.codec))
    if candidate.hook == "fp16":
        model.register_comm_hook(group, default_hooks.fp16_compress_hook)
    elif candidate.hook == "powersgd":
        state = powersgd.PowerSGDState(
            group, matrix_approximation_rank=candidate.amount, start_powerSGD_iter=candidate.start
        )
        model.register_comm_hook(state, powersgd.powerSGD_hook)
    elif candidate.hook == "local":
        return Attached(after_step=_attach_local(candidate, model, group))
    return Attached()


def _compress(model: DistributedDataParallel, codec: str) -> Any:
    try:
        from torch_ringdist import ddp

        return ddp.compress(model, codec)
    except (ImportError, ValueError) as error:
        raise AbsentError(str(error).partition("; have")[0]) from error


def _attach_local(
    candidate: Candidate, model: DistributedDataParallel, group: dist.ProcessGroup
) -> Callable[[], None]:
    state = post_localSGD_hook.PostLocalSGDState(
        process_group=group,
        subgroup=None,
        start_localSGD_iter=candidate.start,
        post_local_gradient_allreduce=False,  # no other rank on the host
    )
    model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    averager = PeriodicModelAverager(candidate.amount, candidate.start, group)
    return lambda: averager.average_parameters(model.parameters())
