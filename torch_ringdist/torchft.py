"""Process group for torchft, over ringdist; torchft's Manager recreates it for each quorum.

    from torch_ringdist.torchft import ProcessGroupRingdist

    manager = torchft.Manager(pg=ProcessGroupRingdist(timeout=timedelta(seconds=30)), ...)

It replaces torchft.ProcessGroupGloo, with torchft 0.2 (where the Manager calls configure) and with
later versions (reconfigure). torchft decides on the members. When a replica dies, operations end
with an error as soon as the kernel or the control plane reports it, not at the timeout.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from torch_ringdist import _native, _registration

try:
    from torchft.process_group import ProcessGroupWrapper  # type: ignore[import-not-found]
except ImportError as error:
    raise ImportError(
        f"torch_ringdist.torchft needs torchft, which cannot be imported: {error}. Install it: pip "
        "install torchft, without its dependencies (--no-deps) where it would bring another torch"
    ) from error

if TYPE_CHECKING:
    from torch_ringdist._options import Options

__all__ = ["ProcessGroupRingdist"]


class ProcessGroupRingdist(ProcessGroupWrapper):
    """Provides all collectives of ringdist, on cpu and cuda, among the replicas of a quorum."""

    def __init__(
        self,
        timeout: timedelta = timedelta(seconds=60),
        pg: Any = None,
        options: Options | None = None,
    ) -> None:
        """Stores the settings; the group itself is created with the first quorum.

        Args:
            timeout: timeout of an operation.
            pg: passed to torchft.process_group.ProcessGroupWrapper.
            options: the Options of init_process_group("ringdist", pg_options=).

        Raises:
            TypeError: `options` has another type.
            ValueError: a value is not accepted. It is raised when the first quorum is formed.
        """
        super().__init__(timeout, pg)
        self._ringdist_options = _registration.options_as_text(
            options, "ProcessGroupRingdist: options"
        )

    def getBackendName(self) -> str:
        return "torchft-ringdist"

    # Creates the group of one quorum; ProcessGroupWrapper calls it.
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
