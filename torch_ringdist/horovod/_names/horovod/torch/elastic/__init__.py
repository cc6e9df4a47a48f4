from torch_ringdist.horovod.elastic import *  # noqa: F403
