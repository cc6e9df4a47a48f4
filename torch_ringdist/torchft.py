"""For torchft: a process group over ringdist that its Manager makes anew for each quorum.

    from torch_ringdist.torchft import ProcessGroupRingdist

    manager = torchft.Manager(pg=ProcessGroupRingdist(timeout=timedelta(seconds=30)), ...)

In place of torchft.ProcessGroupGloo, with torchft 0.2 (whose Manager calls configure) and with
those after it (reconfigure). torchft says who is a member; when a replica dies, operations end with
an error at once, where the kernel or the control plane has seen it, and not at the timeout.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from torch_ringdist import _native, _registration

try:
    from torchft.process_group import ProcessGroupWrapper
except ImportError as error:
    raise ImportError(
        f"torch_ringdist.torchft needs torchft, which cannot be imported: {error}. Install it: pip "
        "install torchft, without its dependencies (--no-deps) where it would bring another torch"
    ) from error

if TYPE_CHECKING:
    from torch_ringdist._options import Options

__all__ = ["ProcessGroupRingdist"]


class ProcessGroupRingdist(ProcessGroupWrapper):
    """All collectives of ringdist, on cpu and cuda, among the replicas of a quorum."""

    def __init__(
        self,
        timeout: timedelta = timedelta(seconds=60),
        pg: Any = None,
        options: Options | None = None,
    ) -> None:
        """
        Args:
            timeout: of an operation.
            pg: as torchft.process_group.ProcessGroupWrapper's.
            options: as init_process_group("ringdist", pg_options=).

        Raises:
            TypeError: options of another type.
            ValueError: a value that is not accepted, when the first quorum is formed.
        """
        super().__init__(timeout, pg)
        self._ringdist_options = _registration.options_as_text(
            options, "ProcessGroupRingdist: options"
        )

    def getBackendName(self) -> str:
        return "torchft-ringdist"

    def _create_pg(self, store: dist.Store, rank: int, world_size: int) -> dist.ProcessGroup:
        backend = _native.load().create_backend(
            store,
            rank,
            world_size,
            self._timeout,
            "torchft",
            list(range(world_size)),
            self._ringdist_options,
            _registration.read_costs,
        )
        group = dist.ProcessGroup(store, rank, world_size)
        kind = dist.ProcessGroup.BackendType.CUSTOM
        group._set_default_backend(kind)
        for device in ("cpu", "cuda"):
            group._register_backend(torch.device(device), kind, backend)
        return group
