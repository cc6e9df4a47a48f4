from torch_ringdist.horovod._compression import *  # noqa: F403
