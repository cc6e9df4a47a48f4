"""Provides torch_ringdist.horovod under Horovod's module names, for scripts that import those.

It is on the path of ranks that ringdistrun or python -m torch_ringdist.horovod starts, if Horovod
itself is not installed.
"""

from torch_ringdist.horovod._call import run as run

__version__ = "0.28.1"  # version of the API
