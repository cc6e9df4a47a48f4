from torch_ringdist.horovod import *  # noqa: F403
from torch_ringdist.horovod import mpi_ops as mpi_ops
