from torch_ringdist.horovod.elastic import ObjectState as ObjectState
from torch_ringdist.horovod.elastic import State as State
