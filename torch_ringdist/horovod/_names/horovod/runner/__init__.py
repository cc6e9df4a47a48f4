from torch_ringdist.horovod._call import run as run
