from torch_ringdist.horovod import *  # noqa: F403
