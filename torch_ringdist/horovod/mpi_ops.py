"""Operations under the module name of Horovod, ``horovod.torch.mpi_ops``. There is no MPI."""

from torch_ringdist.horovod._async import *  # noqa: F403
from torch_ringdist.horovod._basics import *  # noqa: F403
from torch_ringdist.horovod._handles import poll as poll
from torch_ringdist.horovod._handles import synchronize as synchronize
from torch_ringdist.horovod._ops import *  # noqa: F403
from torch_ringdist.horovod._reductions import Adasum as Adasum
from torch_ringdist.horovod._reductions import Average as Average
from torch_ringdist.horovod._reductions import Max as Max
from torch_ringdist.horovod._reductions import Min as Min
from torch_ringdist.horovod._reductions import Product as Product
from torch_ringdist.horovod._reductions import Sum as Sum
