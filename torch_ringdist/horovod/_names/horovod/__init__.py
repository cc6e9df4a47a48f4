"""Horovod's names, for scripts that import them: torch_ringdist.horovod under another name. On the
path of ranks that ringdistrun, or python -m torch_ringdist.horovod, starts where Horovod itself is
not installed."""

from torch_ringdist.horovod._call import run as run

__version__ = "0.28.1"  # of the API
