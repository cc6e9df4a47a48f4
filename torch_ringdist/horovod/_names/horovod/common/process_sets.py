from torch_ringdist.horovod import ProcessSet as ProcessSet
from torch_ringdist.horovod import add_process_set as add_process_set
from torch_ringdist.horovod import (
    get_process_set_ids_and_ranks as get_process_set_ids_and_ranks,
)
from torch_ringdist.horovod import global_process_set as global_process_set
from torch_ringdist.horovod import remove_process_set as remove_process_set
