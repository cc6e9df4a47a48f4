"""Horovod's API over ringdist. Operations are matched by name, not by call order.

    import torch_ringdist.horovod as hvd
    hvd.init()

docs/reference/horovod.md lists the differences from Horovod and what is missing. ringdistrun starts
ranks.

Operations may be called in any order and from any thread. Each waits until all ranks have called
the operation of that name. A name is in use until synchronize(), or until poll() returns True.
"""

from torch_ringdist.horovod import callbacks as callbacks
from torch_ringdist.horovod import elastic as elastic
from torch_ringdist.horovod import mpi_ops as mpi_ops
from torch_ringdist.horovod._async import allgather_async as allgather_async
from torch_ringdist.horovod._async import allreduce_async as allreduce_async
from torch_ringdist.horovod._async import allreduce_async_ as allreduce_async_
from torch_ringdist.horovod._async import alltoall_async as alltoall_async
from torch_ringdist.horovod._async import broadcast_async as broadcast_async
from torch_ringdist.horovod._async import broadcast_async_ as broadcast_async_
from torch_ringdist.horovod._async import grouped_allgather_async as grouped_allgather_async
from torch_ringdist.horovod._async import grouped_allreduce_async as grouped_allreduce_async
from torch_ringdist.horovod._async import grouped_allreduce_async_ as grouped_allreduce_async_
from torch_ringdist.horovod._async import grouped_reducescatter_async as grouped_reducescatter_async
from torch_ringdist.horovod._async import reducescatter_async as reducescatter_async
from torch_ringdist.horovod._async import sparse_allreduce_async as sparse_allreduce_async
from torch_ringdist.horovod._basics import ccl_built as ccl_built
from torch_ringdist.horovod._basics import cross_rank as cross_rank
from torch_ringdist.horovod._basics import cross_size as cross_size
from torch_ringdist.horovod._basics import cuda_built as cuda_built
from torch_ringdist.horovod._basics import ddl_built as ddl_built
from torch_ringdist.horovod._basics import gloo_built as gloo_built
from torch_ringdist.horovod._basics import gloo_enabled as gloo_enabled
from torch_ringdist.horovod._basics import init as init
from torch_ringdist.horovod._basics import is_homogeneous as is_homogeneous
from torch_ringdist.horovod._basics import is_initialized as is_initialized
from torch_ringdist.horovod._basics import local_rank as local_rank
from torch_ringdist.horovod._basics import local_size as local_size
from torch_ringdist.horovod._basics import mpi_built as mpi_built
from torch_ringdist.horovod._basics import mpi_enabled as mpi_enabled
from torch_ringdist.horovod._basics import mpi_threads_supported as mpi_threads_supported
from torch_ringdist.horovod._basics import nccl_built as nccl_built
from torch_ringdist.horovod._basics import rank as rank
from torch_ringdist.horovod._basics import rocm_built as rocm_built
from torch_ringdist.horovod._basics import shutdown as shutdown
from torch_ringdist.horovod._basics import size as size
from torch_ringdist.horovod._compression import Compression as Compression
from torch_ringdist.horovod._errors import HorovodInternalError as HorovodInternalError
from torch_ringdist.horovod._errors import HostsUpdatedInterrupt as HostsUpdatedInterrupt
from torch_ringdist.horovod._handles import poll as poll
from torch_ringdist.horovod._handles import synchronize as synchronize
from torch_ringdist.horovod._objects import allgather_object as allgather_object
from torch_ringdist.horovod._objects import broadcast_object as broadcast_object
from torch_ringdist.horovod._objects import broadcast_object_fn as broadcast_object_fn
from torch_ringdist.horovod._ops import allgather as allgather
from torch_ringdist.horovod._ops import allreduce as allreduce
from torch_ringdist.horovod._ops import allreduce_ as allreduce_
from torch_ringdist.horovod._ops import alltoall as alltoall
from torch_ringdist.horovod._ops import barrier as barrier
from torch_ringdist.horovod._ops import broadcast as broadcast
from torch_ringdist.horovod._ops import broadcast_ as broadcast_
from torch_ringdist.horovod._ops import grouped_allgather as grouped_allgather
from torch_ringdist.horovod._ops import grouped_allreduce as grouped_allreduce
from torch_ringdist.horovod._ops import grouped_allreduce_ as grouped_allreduce_
from torch_ringdist.horovod._ops import grouped_reducescatter as grouped_reducescatter
from torch_ringdist.horovod._ops import join as join
from torch_ringdist.horovod._ops import reducescatter as reducescatter
from torch_ringdist.horovod._optimizer import DistributedOptimizer as DistributedOptimizer
from torch_ringdist.horovod._reductions import Adasum as Adasum
from torch_ringdist.horovod._reductions import Average as Average
from torch_ringdist.horovod._reductions import Max as Max
from torch_ringdist.horovod._reductions import Min as Min
from torch_ringdist.horovod._reductions import Product as Product
from torch_ringdist.horovod._reductions import Sum as Sum
from torch_ringdist.horovod._sets import ProcessSet as ProcessSet
from torch_ringdist.horovod._sets import add_process_set as add_process_set
from torch_ringdist.horovod._sets import (
    get_process_set_ids_and_ranks as get_process_set_ids_and_ranks,
)
from torch_ringdist.horovod._sets import global_process_set as global_process_set
from torch_ringdist.horovod._sets import remove_process_set as remove_process_set
from torch_ringdist.horovod._state import broadcast_optimizer_state as broadcast_optimizer_state
from torch_ringdist.horovod._state import broadcast_parameters as broadcast_parameters
from torch_ringdist.horovod._sync_batch_norm import SyncBatchNorm as SyncBatchNorm
from torch_ringdist.horovod._timeline import start_timeline as start_timeline
from torch_ringdist.horovod._timeline import stop_timeline as stop_timeline
