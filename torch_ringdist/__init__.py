"""Backend "ringdist" of torch.distributed, for machines without NVLink between them.

    import torch_ringdist
    torch.distributed.init_process_group("ringdist")

Importing this package registers the backend "ringdist" for CPU and CUDA tensors, and does nothing
else. The native module is loaded when the first group is created, or when one of the names below is
first used. If the package is installed, the entry points of torch register the backend without the
import.

Public names:

    Options   settings of one process group, for ``init_process_group(..., pg_options=)``
    info      versions, transports, algorithms, limits and variables, as a dict
    stats     bytes, messages and operations of this process since its start
    trace     ``with trace(FOLDER):`` records operations, for ui.perfetto.dev
    log_to    figures of all ranks for TensorBoard, from one rank
    dump      state of this process as text: operations in flight, their steps and peers
    ddp       compresses the gradients of DistributedDataParallel: ``ddp.compress(model, "int4")``
    fsdp      compresses the communication of FSDP2
    CompressState, compress_hook
              ddp.compress as a pair for ``register_comm_hook``
    all_reduce, reduce_scatter_tensor, all_gather_into_tensor
              the collectives of torch.distributed, with a codec
    shared_memory
              ``with shared_memory():`` allocates tensors that ranks of a host read in place
    shrink    makes a new group of the survivors after members were lost, and of newcomers
    admit     lets newcomers into the default group; shrink() takes them in
    join      makes this process a member of a group that admits newcomers; replaces
              init_process_group()
    elastic   training that loses ranks and takes new ones without losing a step
    horovod   the API of horovod.torch
    ShrinkReport, JoinReport
              the lost members, the survivors and the newcomers of a new generation
    ArgumentError, NotSupportedError
              errors that operations raise for arguments that they do not accept

torch_ringdist.torchft is for torchft, and needs it. ``python -m torch_ringdist --help`` describes
the same features on the command line.
"""

from typing import TYPE_CHECKING

from torch_ringdist import _registration

if TYPE_CHECKING:
    from torch_ringdist import ddp as ddp
    from torch_ringdist import elastic as elastic
    from torch_ringdist import fsdp as fsdp
    from torch_ringdist import horovod as horovod
    from torch_ringdist._collectives import all_gather_into_tensor as all_gather_into_tensor
    from torch_ringdist._collectives import all_reduce as all_reduce
    from torch_ringdist._collectives import reduce_scatter_tensor as reduce_scatter_tensor
    from torch_ringdist._compress import CompressState as CompressState
    from torch_ringdist._compress import compress_hook as compress_hook
    from torch_ringdist._errors import ArgumentError as ArgumentError
    from torch_ringdist._errors import NotSupportedError as NotSupportedError
    from torch_ringdist._inspect import dump as dump
    from torch_ringdist._inspect import info as info
    from torch_ringdist._inspect import stats as stats
    from torch_ringdist._join import JoinReport as JoinReport
    from torch_ringdist._join import admit as admit
    from torch_ringdist._join import join as join
    from torch_ringdist._log_to import log_to as log_to
    from torch_ringdist._options import Options as Options
    from torch_ringdist._shared_memory import shared_memory as shared_memory
    from torch_ringdist._shrink import ShrinkReport as ShrinkReport
    from torch_ringdist._shrink import shrink as shrink
    from torch_ringdist._trace import trace as trace

    __version__: str

# Maps each public name to the module that defines it. Names are imported on first use, because
# `import torch` loads this file in every process of an environment that has the package installed.
# So it has to be cheap.
_LAZY = {
    "ArgumentError": "torch_ringdist._errors",
    "CompressState": "torch_ringdist._compress",
    "JoinReport": "torch_ringdist._join",
    "NotSupportedError": "torch_ringdist._errors",
    "Options": "torch_ringdist._options",
    "ShrinkReport": "torch_ringdist._shrink",
    "admit": "torch_ringdist._join",
    "all_gather_into_tensor": "torch_ringdist._collectives",
    "all_reduce": "torch_ringdist._collectives",
    "compress_hook": "torch_ringdist._compress",
    "dump": "torch_ringdist._inspect",
    "info": "torch_ringdist._inspect",
    "join": "torch_ringdist._join",
    "log_to": "torch_ringdist._log_to",
    "reduce_scatter_tensor": "torch_ringdist._collectives",
    "shared_memory": "torch_ringdist._shared_memory",
    "shrink": "torch_ringdist._shrink",
    "stats": "torch_ringdist._inspect",
    "trace": "torch_ringdist._trace",
}
_MODULES = ("ddp", "elastic", "fsdp", "horovod", "torchft")

__all__ = [
    "ArgumentError",
    "CompressState",
    "JoinReport",
    "NotSupportedError",
    "Options",
    "ShrinkReport",
    "admit",
    "all_gather_into_tensor",
    "all_reduce",
    "compress_hook",
    "ddp",
    "dump",
    "elastic",
    "fsdp",
    "horovod",
    "info",
    "join",
    "log_to",
    "reduce_scatter_tensor",
    "shared_memory",
    "shrink",
    "stats",
    "trace",
]


if not TYPE_CHECKING:  # a type checker would take it as a definition of every name

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _LAZY:
            value = getattr(import_module(_LAZY[name]), name)
        elif name in _MODULES:
            try:
                value = import_module(f"torch_ringdist.{name}")
            except ImportError as error:  # hasattr(), help() and inspect do not catch ImportError
                raise AttributeError(str(error)) from error
        elif name == "__version__":
            from importlib.metadata import version

            value = version("torch-ringdist")
        else:
            raise AttributeError(f"module 'torch_ringdist' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    special = {name for name in globals() if name.startswith("__")}
    return sorted({*__all__, *special, "__version__"})


# While `import torch` is running, torch calls autoload() next, which never raises. register() may
# raise, so it is not called then. The command line registers where a command needs torch.
if not (_registration.is_being_imported("torch") or _registration.is_command_line()):
    _registration.register()
