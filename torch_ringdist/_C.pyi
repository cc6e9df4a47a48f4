"""The native module. Import it through torch_ringdist._native.load(), which checks the build."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypedDict

from torch import Tensor
from torch.distributed import GradBucket, Store, Work
from torch.distributed.distributed_c10d import _Backend
from torch.futures import Future

class ProcessGroupRing(_Backend):
    """One rank's part of a group. Its operations may be called from any thread; the ranks match
    them by their order of call, so two threads that call on one group need an order of their own.
    """

    @property
    def timeout(self) -> timedelta:
        """Of its operations, as it is now."""
    @property
    def has_failed(self) -> bool:
        """It is of no use any more, whatever the error that told of it."""
    def admit(self, job: str, note: str, most: int) -> None:
        """Newcomers may come, while there are fewer than `most` members (0: any number). `note` is
        for them. On rank 0 blocks on the store. Raises as torch_ringdist.admit()."""
    def give_up(self, rank: int, why: str) -> None:
        """Treat another rank's process as lost, though it lives: the group fails, and
        next_generation() leaves it out. Raises ArgumentError: the group has not formed."""
    def next_generation(self, timeout: timedelta) -> NextGeneration:
        """Agree with all members that can be reached on the next generation, and make its group;
        this one ends on all ranks. Blocks without the GIL. Raises DistBackendError when the time is
        over ("no quorum: ..."): it may be called again; DistNetworkError, others go on without this
        process ("excluded in ..."); ArgumentError, not formed; NotSupportedError, one rank."""

class NextGeneration:
    """What became of a group that has lost members, or taken newcomers."""

    @property
    def backend(self) -> ProcessGroupRing:
        """Of the new generation; it forms."""
    @property
    def generation(self) -> int: ...  # 1 for the first shrink
    @property
    def id(self) -> str: ...  # the same on all members, and of no other generation
    @property
    def stayed(self) -> list[int]: ...  # ranks of the old group, in the order of the new ones
    @property
    def lost(self) -> list[tuple[int, str, str]]:
        """Rank of the old group; "died" or "silent"; where, as "pid 12 on host x"."""
    @property
    def joined(self) -> list[int]: ...  # the new ranks of newcomers
    @property
    def first_unfinished(self) -> int:
        """The first collective, from 1, that not all who stay had finished."""
    @property
    def store(self) -> str:
        """Empty: the old store goes on. Else "host:port" of a TCPStore of the new rank 0."""

def create_reconfigurable(
    store: Store,
    rank: int,
    size: int,
    timeout: timedelta,
    group_name: str,
    options: dict[str, str],
    read_costs: Callable[[str], _Costs] | None = None,
) -> ProcessGroupRing:
    """Create a group without members, which its reconfigure() (torch 2.14) chooses: until then its
    operations raise ArgumentError. `rank` and `size` are what it says of itself until then."""

class NamedWork:
    """An operation called by name; after release_name() that is free at its end. Any thread."""

    def release_name(self) -> None: ...
    def poll(self) -> bool:
        """Whether it has ended; then its name may be used again."""
    def wait(self) -> list[Tensor]:
        """Its outputs, when it has ended, also on its device. Raises its error, and on Ctrl-C."""

class NamedGroup:
    """Operations that ranks match by name, each calling them in an order of its own; any thread.
    Each returns at once. Raises: ArgumentError, NotSupportedError, for arguments that it does not
    take, and a name that is taken; DistBackendError, DistNetworkError, the group has failed."""

    def __init__(
        self,
        backend: ProcessGroupRing,
        cache_capacity: int = 1024,
        fusion_bytes: int = 64 << 20,
        batches_in_flight: int = 2,
        warn_after: float = 60.0,
    ) -> None:
        """The backend is for this alone; all ranks make it alike. `warn_after`: seconds that a call
        waits for ranks until rank 0 says so on stderr; 0: never."""
    def allreduce(
        self,
        name: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        op: str,
        prescale: float = 1.0,
        postscale: float = 1.0,
        will_wait: bool = False,
    ) -> NamedWork:
        """Of a list, as one operation. `op`: sum, average, min, max, product. An output may be its
        input. `will_wait`: this thread calls wait() next."""
    def allgather(self, name: str, inputs: Sequence[Tensor], manner: str = "") -> NamedWork:
        """Of a list, as one operation. `manner`: what else must be alike, in words."""
    def broadcast(self, name: str, input: Tensor, output: Tensor, root: int) -> NamedWork:
        """`root`: a rank of this group."""
    def alltoall(self, name: str, input: Tensor, splits: Sequence[int]) -> NamedWork:
        """Its outputs: what was received, and (int64) how many rows of each rank."""
    def reducescatter(
        self,
        name: str,
        inputs: Sequence[Tensor],
        op: str,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> NamedWork:
        """Of a list, as one operation."""
    def barrier(self, name: str) -> NamedWork: ...
    def tune(self, fusion_bytes: int, batches_in_flight: int) -> None:
        """On rank 0: of what is decided from now on. Raises: ArgumentError."""
    def start_timeline(self, path: str, mark_cycles: bool = False) -> None:
        """On rank 0: all record what calls do, rank N in `path`.rank-N. Raises: ArgumentError, they
        do so already; DistBackendError, it cannot be written."""
    def stop_timeline(self, timeout: float) -> bool:
        """On rank 0: all have stopped, and what they wrote is beside `path`. False: not all of it
        within so many seconds."""
    def join(self, device: int | None = None) -> int:
        """The rank that was last to join. `device`: the CUDA device whose memory stands for this
        rank's in what others call on theirs. Blocks without the GIL."""
    def close(self) -> None:
        """Waits for what has been called, then leaves. Blocks without the GIL."""

class JoinedGroup:
    next: NextGeneration  # of a newcomer: nothing has stayed or is lost
    name: str  # of the first generation
    note: str  # of admit()

def join_group(
    store: Store,
    job: str,
    timeout: timedelta,
    options: dict[str, str],
    read_costs: Callable[[str], _Costs] | None = None,
) -> JoinedGroup:
    """As torch_ringdist.join(): blocks without the GIL."""

class _Ucx(TypedDict):
    version: str
    path: str
    origin: str  # "wheel", "system", or "not loaded: <why>"

class _Cuda(TypedDict):
    built_for: str  # architectures, "80, 90, 100"; "" where it is not loaded
    state: str  # "ok", or "not loaded: <why>"

class _Info(TypedDict):
    version: str
    torch: str  # the minor version that this was built for, as "2.13"
    ucx: _Ucx
    cuda: _Cuda
    transports: list[tuple[str, str, str]]  # name, description, "ok" or why not
    algorithms: list[tuple[str, str]]  # name, description
    codecs: list[tuple[str, str]]
    operations: list[str]
    limits: list[tuple[str, str, str]]  # name, value, meaning
    variables: list[tuple[str, str, str, str, str]]  # name, value, default, meaning, set|default

def create_backend(
    store: Store,
    rank: int,
    size: int,
    timeout: timedelta,
    group_name: str,
    global_ranks: list[int],
    options: dict[str, str],
    read_costs: Callable[[str], _Costs] | None = None,
) -> ProcessGroupRing:
    """Create this rank's part of a group, without waiting for the other ranks. Any thread.

    `options` has option names and their values as text, as in the RINGDIST_* variables, which they
    override; a bool is "true" or "false". `read_costs` is called with the name of a file of costs,
    where there is one; what it raises is told to the other ranks. Raises ValueError naming the
    option, the value and what is accepted; RuntimeError when the store or the network fails."""

def info() -> _Info: ...  # versions, registries, limits and variables; any thread
def cuda_devices() -> tuple[list[tuple[str, str, int, str]], str]:
    """Name, compute capability, bytes of memory and PCI address, "0000:17:00.0", of each device;
    why there is none, or "". Starts CUDA in this process: children that it forks from then on
    cannot use it. RuntimeError where libringdist_cuda.so is not loaded. Any thread."""

def options() -> list[tuple[str, str, str, str]]:
    """The fields of Options: name, type ("str", "int", "float" or "bool"), default, meaning."""

def stats() -> dict[str, int]:
    """Counters since process start: bytes_sent, bytes_received, messages_sent, messages_received,
    ops_completed and more; shared_tensors and shared_bytes, which there are now, and
    bytes_read_in_place, which others have read of them. Any thread may call it."""

def begin_sharing() -> None:
    """From here on this thread allocates tensors that the ranks of its host read in place, until
    as many calls of end_sharing(). What it allocates raises RuntimeError without memory."""

def end_sharing() -> None: ...
def start_trace(path: str, rank: int, name: str) -> bool:
    """What operations of this process do from now on is written there (_timeline.py). False: it is
    recorded already. Raises: DistBackendError, it cannot be written."""

def stop_trace() -> None: ...
def dump() -> str:
    """State of this process: operations in flight, step, peers, credits. Any thread may call it."""

def shutdown() -> None:
    """Send what is queued and stop all threads, within bounded time; a second call does nothing.
    Any thread may call it; operations that are still pending fail."""

# Compression: arguments are checked before anything is sent. ValueError and TypeError name the
# argument, what was given and what is accepted. Any thread may call these.

NO_CODEC: str  # the codec that leaves values as they are
MIN_COMPRESSED: int  # elements; what compresses by itself leaves smaller tensors alone

def check_coding(codec: str, parameters: bool) -> None:
    """Raises ValueError for a codec that no operation takes; for what gathers `parameters`, also
    for a pair and for one that loses too much of them."""

def check_codec(argument: str, spec: str, size: int, error_feedback: bool | None) -> str:
    """The full name of a codec or pair in a group of `size`; ValueError, naming `argument`, for
    one that does not exist, or that may not have the error feedback asked for."""

def all_reduce(
    group: ProcessGroupRing,
    tensor: Tensor,
    op: Any,
    codec: str,
    residual: Tensor | None,
    async_op: bool,
) -> Work: ...
def reduce_scatter(
    group: ProcessGroupRing,
    output: Tensor,
    input: Tensor,
    op: Any,
    codec: str,
    residual: Tensor | None,
    async_op: bool,
    pieces: Sequence[tuple[int, str]] = ...,  # of each rank's part: elements, codec; else `codec`
) -> Work: ...
def all_gather(
    group: ProcessGroupRing,
    output: Tensor,
    input: Tensor,
    codec: str,
    async_op: bool,
    pieces: Sequence[tuple[int, str]] = ...,
) -> Work: ...
def sum_of_state(group: ProcessGroupRing, tensor: Tensor) -> None:
    """all_reduce(SUM), which errors and dumps call that of CompressState.state_dict()."""

class Compression:
    """The state of a gradient-compressing hook: parameters, residuals, counters."""

    def __init__(
        self,
        *,
        group: ProcessGroupRing,
        codec: str,
        warmup_steps: int,
        schedule: dict[int, str],
        error_feedback: bool | None,
        guard: float,  # 0: none
        measure_every: int,  # 0: never
        at_step: Callable[[int], tuple[str, float]] | None,  # codec or "", loss scale or 0
        all_buckets_come: bool = False,  # else those that have when the backward pass ends
    ) -> None: ...
    def add_parameter(self, tensor: Tensor, name: str, codec: str, coarsest: str) -> None:
        """Before the first step. `codec`: always this one; `coarsest`: in place of one of fewer
        bits; both empty: the codec of the hook."""
    def run(self, bucket: GradBucket) -> Future[list[Tensor]]: ...
    def run_bucket(
        self, index: int, count: int, buffer: Tensor, parameters: list[Tensor]
    ) -> Future[list[Tensor]]:
        """The same of who is not DDP: gradients of those parameters, one after another, of so many
        buckets in a step; all come, in their order."""
    def report(self) -> dict[str, Any]: ...
    def residual_norm(self) -> float: ...
    def state(self, committed: bool = False) -> tuple[int, float, list[tuple[str, Tensor]]]:
        """Steps, loss scale, copies of this rank's residuals in one dimension. `committed`: as if
        the last step, all of whose buckets have come, had not failed here: for good."""
    def load(self, steps: int, scale: float, residuals: list[tuple[str, Tensor]]) -> None: ...

def register_comm_hook(reducer: Any, compression: Compression) -> None:
    """RuntimeError if DDP's reducer has a hook already."""

def codec_traits(spec: str, size: int) -> tuple[str, float, bool]:
    """Of a codec, pair or "powersgd:r" in a group of `size`: its full name, bits per element of a
    contribution (0 for PowerSGD: less than any codec), and whether it has error feedback by
    default. ValueError for one that does not exist."""

class BoundedStore:
    """A TCPStore: all raise DistNetworkError if it has not answered within the limit."""

    def __init__(self, host: str, port: int, limit: timedelta) -> None: ...
    def connect(self, timeout: timedelta) -> None: ...  # till one answers
    def set(self, key: str, value: str) -> None: ...
    def find(self, key: str) -> str | None: ...
    def add(self, key: str, amount: int) -> int: ...
    def compare_set(self, key: str, expected: str, desired: str) -> str: ...

class LocalRanks:
    """A group whose ranks are all in this process, for studies: one Context each, joined by memory
    instead of a network. Reads no RINGDIST_* variable. One thread at a time."""

    def __init__(self, size: int) -> None: ...
    @property
    def size(self) -> int: ...
    def all_reduce(
        self,
        tensors: list[Tensor],  # one per rank: float32, one dimension, contiguous; in place
        # elements, rows (a parameter's first dimension), codec, error feedback
        parts: list[tuple[int, int, str, bool]],
        residuals: list[Tensor] | None,  # as tensors: what each rank owes, where a part wants it
        average: bool,  # AVG, else SUM
        algorithm: str = "direct",
    ) -> None:
        """Every rank calls at once; waits for all. The parts cover the tensors in order. PowerSGD
        only averages, and begins where its last approximation of the matrix at that offset ended.

        ValueError names the argument, with nothing changed. DistBackendError if a rank fails; the
        group is then of no further use."""
    def bytes_sent(self) -> int:
        """Payload, by all ranks since the beginning."""

def codec_examples() -> list[tuple[str, str]]: ...  # (spec, description)
def measure_codec(spec: str, elements: int, seconds: float) -> dict[str, float | str]: ...

# Cost constants: {"inside": {...}, "between": {...}}, with the keys of _costs.Link.
_Costs = dict[str, dict[str, float]]

USUAL_RATE: float  # bits per second between hosts, where nobody says otherwise
USUAL_LATENCY_NS: int

def usual_costs(bits_per_second: float, latency_ns: int) -> _Costs:
    """What is counted with where nobody says otherwise, for such lines between hosts."""

def forecast(
    *,
    operation: str,  # "all_reduce"; no send or receive
    count: int,  # elements of the tensor (all_reduce, broadcast, reduce), else of a rank's part
    dtype: str,
    reduce_op: str,  # "SUM"; not read where nothing is reduced
    root: int,
    hosts: list[list[int]],  # the ranks of each
    algorithm: str,  # forced; "": the planner's choice
    codec: str,  # "": none
    layout_deterministic: bool,
    segment_bytes: int,
    costs: _Costs,
    most_messages: int,  # of each algorithm's walk; more are walked several to one
    shown: int,  # rounds list their messages up to so many ranks; < 0: no rounds
) -> dict[str, Any]:
    """What a group would do with an operation, and what else it could.

    Keys: algorithm, why, segment_count; alternatives, each with algorithm, description, refusal
    ("" if it may be taken), formula_seconds if it may, and if it was walked seconds, messages,
    bytes_inside, bytes_between, busiest_line, ranks_walked, joined (segments to a message);
    rounds, where not too many steps differ, each with messages_inside, messages_between,
    elements_inside, elements_between (of all ranks), messages: (from, to, elements,
    "contribution" | "result" | "relay").

    Without the GIL; any thread. ValueError or TypeError for what a group would refuse."""

class _Route(TypedDict):
    by_nccl: bool  # else by way of the host
    why: str  # that way
    how: str  # it runs there
    because: str
    host_op: bool  # what moves and reduces is the host's op of the same kind

def device_route(
    *,
    operation: str,  # as of forecast(); no barrier, which is the host's
    count: int,
    dtype: str,
    reduce_op: str,
    root: int,
    hosts: list[list[int]],
    algorithm: str,  # forecast()'s answer; "": none
    codec: str,
    devices: int,  # of each host, at least 1: its ranks take them in turn
    path: str,  # as RINGDIST_DEVICE_PATH
    nccl: bool,  # each rank is taken to have it; else what this process finds
) -> _Route:
    """How a group would run an operation on CUDA tensors. Starts no CUDA; any thread.

    RuntimeError where libringdist_cuda.so is not loaded; ValueError or TypeError for what a group
    would refuse."""
