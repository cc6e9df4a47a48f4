"""The native module. Import it through torch_ringdist._native.load(), which checks the build."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypedDict

from torch import Tensor
from torch._C._distributed_c10d import Backend as _Backend
from torch.distributed import GradBucket, Store, Work
from torch.futures import Future

_TlsFiles = tuple[str, str, str, str]  # see _credentials.py

class ProcessGroupRing(_Backend):
    """One rank's part of a group. Any thread. Ranks match operations by the order of the calls."""

    @property
    def timeout(self) -> timedelta:
        """Present timeout of its operations."""
    @property
    def has_failed(self) -> bool:
        """True if the group has failed; no later operation can succeed."""
    def admit(self, job: str, note: str, most: int) -> None:
        """Accepts newcomers while the group has fewer than `most` members (0: no limit) and passes
        them `note`. Blocks on the store on rank 0. Raises as torch_ringdist.admit() does."""
    def give_up(self, rank: int, why: str) -> None:
        """Treats the process of another rank as lost although it runs: the group fails, and
        next_generation() leaves it out. Raises ArgumentError if the group has not formed."""
    def next_generation(self, timeout: timedelta) -> NextGeneration:
        """Agrees with all reachable members on the next generation and makes its group; this one
        ends on all ranks. Releases the GIL. Raises DistBackendError on timeout ("no quorum: ...";
        may be retried), DistNetworkError if the others excluded this process, ArgumentError before
        the group has formed, and NotSupportedError for a single rank."""

class NextGeneration:
    """Result of a change of members: the next generation and its differences."""

    @property
    def backend(self) -> ProcessGroupRing: ...  # group of the new generation; it is still forming
    @property
    def generation(self) -> int: ...  # 1 after the first shrink
    @property
    def id(self) -> str: ...  # equal on all members, unique to the generation
    @property
    def stayed(self) -> list[int]: ...  # old ranks of the survivors, ordered by new rank
    @property
    def lost(self) -> list[tuple[int, str, str]]: ...  # rank, cause, "pid 12 on host x"
    @property
    def joined(self) -> list[int]: ...  # new ranks of the newcomers
    @property
    def first_unfinished(self) -> int: ...  # collective, from 1, that a survivor had not finished
    @property
    def store(self) -> str: ...  # "", or "host:port" of a TCPStore that replaces the old store

def create_reconfigurable(
    store: Store,
    rank: int,
    size: int,
    timeout: timedelta,
    group_name: str,
    options: dict[str, str],
    read_costs: Callable[[str], _Costs] | None = None,
) -> ProcessGroupRing:
    """Creates a group without members; its reconfigure() (torch 2.14) sets them. Until then its
    operations raise ArgumentError, and it reports `rank` and `size` as given here."""

class NamedWork:
    """An operation called by name. release_name() frees the name when it ends. Any thread."""

    def release_name(self) -> None: ...
    def poll(self) -> bool:
        """Returns True if the operation has ended; then its name may be used again."""
    def wait(self) -> list[Tensor]:
        """Waits for the end, also on the device; returns the outputs. Raises its error."""

class NamedGroup:
    """Operations that ranks match by name, so each rank may call them in its own order. Calls
    return at once; any thread. They raise ArgumentError or NotSupportedError for a bad argument or
    a name in use, and DistBackendError or DistNetworkError if the group failed."""

    def __init__(
        self,
        backend: ProcessGroupRing,
        cache_capacity: int = 1024,
        fusion_bytes: int = 64 << 20,
        batches_in_flight: int = 2,
        warn_after: float = 60.0,
    ) -> None:
        """Takes over the backend. Rank 0 reports calls that wait for `warn_after` s (0: never)."""
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
        """Reduces a list as one operation; `op` is sum, average, min, max or product. Outputs may
        be the inputs. `will_wait` promises that this thread calls wait() next."""
    def allgather(self, name: str, inputs: Sequence[Tensor], manner: str = "") -> NamedWork:
        """Gathers a list as one operation. `manner` is text that must match on all ranks."""
    def broadcast(self, name: str, input: Tensor, output: Tensor, root: int) -> NamedWork:
        """Sends `input` of rank `root` of this group to all ranks."""
    def alltoall(self, name: str, input: Tensor, splits: Sequence[int]) -> NamedWork:
        """Outputs the received rows, and an int64 tensor with the row count of each rank."""
    def reducescatter(
        self,
        name: str,
        inputs: Sequence[Tensor],
        op: str,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> NamedWork:
        """Reduces and scatters a list as one operation."""
    def barrier(self, name: str) -> NamedWork: ...
    def tune(self, fusion_bytes: int, batches_in_flight: int) -> None:
        """On rank 0: sets both values for later decisions. Raises ArgumentError."""
    def start_timeline(self, path: str, mark_cycles: bool = False) -> None:
        """On rank 0: starts recording on all ranks, rank N in `path`.rank-N. Raises ArgumentError
        if they record already, and DistBackendError if the file cannot be written."""
    def stop_timeline(self, timeout: float) -> bool:
        """On rank 0: ends recording. Returns False if files are missing after `timeout` seconds."""
    def join(self, device: int | None = None) -> int:
        """Returns the last rank to join. `device`, of CUDA, holds this rank's neutral parts."""
    def close(self) -> None:
        """Waits for all calls, then leaves the group. Releases the GIL."""

class JoinedGroup:
    @property
    def next(self) -> NextGeneration: ...  # has no survivors and no lost members for a newcomer
    @property
    def name(self) -> str: ...  # name of the first generation's group
    @property
    def note(self) -> str: ...  # the `note` of admit()

def join_group(
    store: Store,
    job: str,
    timeout: timedelta,
    options: dict[str, str],
    read_costs: Callable[[str], _Costs] | None = None,
) -> JoinedGroup:
    """Joins an existing group as torch_ringdist.join() does. Releases the GIL while it blocks."""

class _Ucx(TypedDict):
    version: str
    path: str
    origin: str  # "wheel", "system", or "not loaded: <why>"

class _Cuda(TypedDict):
    built_for: str  # architectures, such as "80, 90, 100"; "" if not loaded
    state: str  # "ok", or "not loaded: <why>"

class _Info(TypedDict):
    version: str
    torch: str  # torch minor version of the build, such as "2.13"
    ucx: _Ucx
    cuda: _Cuda
    interfaces: dict[str, Any]  # see torch_ringdist.info()
    transports: list[tuple[str, str, str]]  # name, description, "ok" or why unavailable
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
    """Creates this rank's part of a group without waiting for other ranks. Any thread.

    `options` maps names to text as the RINGDIST_* variables have it, which they override.
    `read_costs` gets the name of the costs file if one is set; the other ranks get its exception.
    Raises ValueError for a bad option, or RuntimeError if the store or network fails."""

def info() -> _Info: ...  # versions, registries, limits and variables; any thread
def cuda_devices() -> tuple[list[tuple[str, str, int, str]], str]:
    """Returns name, compute capability, bytes and PCI address ("0000:17:00.0") of each device, and
    the reason if there is none. Initializes CUDA. RuntimeError without libringdist_cuda.so."""

def options() -> list[tuple[str, str, str, str]]:
    """Returns name, type ("str", "int", "float", "bool"), default and meaning per Options field."""

def stats() -> dict[str, int]: ...  # counters of this process, as torch_ringdist.stats has them
def begin_sharing() -> None: ...  # later tensors of this thread are in shared memory,
def end_sharing() -> None: ...  # until a matching call of this
def start_trace(path: str, rank: int, name: str) -> bool:
    """Writes later operations of this process to `path` (format: _timeline.py). Returns False if a
    trace is active already. Raises DistBackendError if the file cannot be written."""

def stop_trace() -> None: ...
def dump() -> str: ...  # operations, steps, peers and credits of this process; any thread
def report_of(name: str, files: _TlsFiles, kind: int, body: bytes, limit: float) -> list[bytes]: ...
def enable_main_thread_stack() -> None: ...
def shutdown() -> None:
    """Sends queued messages and stops all threads within bounded time; later calls do nothing.
    Pending operations fail. Any thread."""

# Compression. Errors name the argument and accepted values, before anything is sent. Any thread.

NO_CODEC: str  # the codec that leaves values unchanged
MIN_COMPRESSED: int  # elements; automatic compression skips smaller tensors

def check_coding(codec: str, parameters: bool) -> None:
    """Raises ValueError for a codec that no operation accepts. For gathered `parameters` it also
    rejects pairs and codecs that lose too much."""

def check_codec(argument: str, spec: str, size: int, error_feedback: bool | None) -> str:
    """Returns the full name of a codec or pair in a group of `size`. Raises ValueError, naming
    `argument`, if it does not exist or does not support the requested error feedback."""

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
    pieces: Sequence[tuple[int, str]] = ...,  # elements, codec per piece of a part
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
    """Runs all_reduce(SUM); errors and dumps name it after CompressState.state_dict()."""

class Compression:
    """State of a gradient-compressing hook: parameters, residuals, counters."""

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
        all_buckets_come: bool = False,  # else only those ready when backward ends
    ) -> None: ...
    def add_parameter(self, tensor: Tensor, name: str, codec: str, coarsest: str) -> None:
        """Call before the first step. If set, `codec` always applies, and `coarsest` replaces
        codecs of fewer bits; if both are empty, the codec of the hook applies."""
    def run(self, bucket: GradBucket) -> Future[list[Tensor]]: ...
    def run_bucket(
        self, index: int, count: int, buffer: Tensor, parameters: list[Tensor]
    ) -> Future[list[Tensor]]:
        """Compresses a bucket outside of DDP: `buffer` has the gradients of `parameters` one after
        another. All `count` buckets of a step must come, in order."""
    def report(self) -> dict[str, Any]: ...
    def residual_norm(self) -> float: ...
    def state(self, committed: bool = False) -> tuple[int, float, list[tuple[str, Tensor]]]:
        """Returns steps, loss scale and 1-D copies of this rank's residuals. `committed` treats a
        last step with all buckets present as successful; this cannot be undone."""
    def load(self, steps: int, scale: float, residuals: list[tuple[str, Tensor]]) -> None: ...

def register_comm_hook(reducer: Any, compression: Compression) -> None:
    """Raises RuntimeError if the reducer of DDP already has a hook."""

def codec_traits(spec: str, size: int) -> tuple[str, float, bool]:
    """Returns the full name, bits per element of a contribution, and default error feedback of a
    codec, pair or "powersgd:r" in a group of `size`. Bits are 0 for PowerSGD. Raises ValueError if
    it does not exist."""

class BoundedStore:
    """Client of a TCPStore, or of one of ringdist's own. DistNetworkError after `limit`."""

    def __init__(
        self, host: str, port: int, limit: timedelta, files: _TlsFiles = ..., is_hosted: bool = ...
    ) -> None: ...
    def connect(self, timeout: timedelta) -> None: ...  # waits until a store answers
    def set(self, key: str, value: str) -> None: ...
    def find(self, key: str) -> str | None: ...
    def add(self, key: str, amount: int) -> int: ...
    def count(self, key: str) -> int: ...  # a sum of add(); 0 if the value is no number
    def compare_set(self, key: str, expected: str, desired: str) -> str: ...

class RingdistStore(Store):
    """Serves a ringdist:// store at the socket `listener`; if it is -1, connects to one."""

    def __init__(
        self, host: str, port: int, listener: int, timeout: timedelta, files: _TlsFiles
    ) -> None: ...
    @staticmethod
    def serves(port: int) -> bool: ...  # True if this process serves such a store there
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...

class LocalRanks:
    """A group for studies with all ranks in this process: one Context each, joined by memory
    instead of a network. Reads no RINGDIST_* variable. One thread at a time."""

    def __init__(self, size: int) -> None: ...
    @property
    def size(self) -> int: ...
    def all_reduce(
        self,
        tensors: list[Tensor],  # one per rank, reduced in place; float32, 1-D, contiguous
        # elements, rows (a parameter's first dimension), codec, error feedback
        parts: list[tuple[int, int, str, bool]],
        residuals: list[Tensor] | None,  # one per rank, where a part has error feedback
        average: bool,  # AVG, else SUM
        algorithm: str = "direct",
    ) -> None:
        """Runs the call on all ranks and waits. Parts cover the tensors in order. PowerSGD only
        averages, and starts from its last approximation at the same offset.
        Raises ValueError, naming the argument, with nothing changed; or DistBackendError if a rank
        fails, after which the group is unusable."""
    def bytes_sent(self) -> int: ...  # payload bytes of all ranks since the start

def codec_examples() -> list[tuple[str, str]]: ...  # (spec, description)
def measure_codec(spec: str, elements: int, seconds: float) -> dict[str, float | str]: ...

_Costs = dict[str, dict[str, float]]  # by "inside" and "between", with the keys of _costs.Link

USUAL_RATE: float  # default bits per second between hosts
USUAL_LATENCY_NS: int

def usual_costs(bits_per_second: float, latency_ns: int) -> _Costs:
    """Returns the default costs for links of this rate and latency between hosts."""

def forecast(
    *,
    operation: str,  # such as "all_reduce"; no send or receive
    count: int,  # elements of the tensor (all_reduce, broadcast, reduce), else of a rank's part
    dtype: str,
    reduce_op: str,  # such as "SUM"; ignored if nothing is reduced
    root: int,
    hosts: list[list[int]],  # ranks per host
    algorithm: str,  # forced algorithm, or "" for the planner's choice
    codec: str,  # "": none
    layout_deterministic: bool,
    segment_bytes: int,
    costs: _Costs,
    most_messages: int,  # limit per algorithm; above it, segments are joined
    shown: int,  # rounds list messages up to this many ranks (< 0: no rounds)
) -> dict[str, Any]:
    """Predicts the plan of an operation and its alternatives.

    Keys are algorithm, why, reduces, in_place, segment_count, alternatives and rounds.
    Alternatives have algorithm, description, refusal ("" if allowed) and, if allowed,
    formula_seconds. A simulated one has seconds, messages, bytes_inside, bytes_between,
    busiest_line, ranks_walked and joined (segments per message). A round has
    messages_inside/between, elements_inside/between and messages of (from, to, elements, kind).
    Rounds are missing if too many steps differ. Releases the GIL; any thread. Raises ValueError or
    TypeError if a group would refuse it."""

class _Route(TypedDict):
    by_nccl: bool  # else through host memory
    why: str  # reason for this path
    how: str  # description of the execution
    because: str  # reason for `how`
    host_op: bool  # the transfer and reduction are a host op of the same kind

def device_route(
    *,
    operation: str,  # see forecast(); no barrier, which runs on the host
    count: int,
    dtype: str,
    reduce_op: str,
    root: int,
    hosts: list[list[int]],
    algorithm: str,  # algorithm in the result of forecast(), or ""
    codec: str,
    devices: int,  # per host, at least 1; ranks use them in turn
    path: str,  # a value of RINGDIST_DEVICE_PATH, or ""
    nccl: bool,  # assume NCCL on each rank; else check this process
) -> _Route:
    """Returns how a group would run an operation on CUDA tensors. Starts no CUDA. Any thread.

    Raises RuntimeError if libringdist_cuda.so is not loaded, and ValueError or TypeError if a group
    would refuse it."""
