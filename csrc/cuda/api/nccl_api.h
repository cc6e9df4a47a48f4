// Interface to NCCL: every function that the product calls. LoadedNccl implements it, and tests
// replace it with a fake.
//
// The functions have the contracts of nccl.h. Communicators are non-blocking, so a call may return
// kInProgress; async_error() then returns the state. Sizes are in elements. Only one thread at a
// time may make calls for a communicator. group_start() and group_end() enclose calls of one
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace ringdist::gpu {

// NCCL's types in its binary interface, which are stable since 2.18. They are declared here so that
// a build needs no nccl.h. tests/cpp/cuda/nccl/nccl_types_test.cc compares them with nccl.h where
// it exists.
using NcclComm = void*;  // ncclComm_t

// ncclUniqueId
struct NcclUniqueId {
  std::array<char, 128> internal{};
};

// ncclResult_t. Later versions may return others.
enum class NcclResult : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

// ncclDataType_t
enum class NcclType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8E4M3 = 10,  // from 2.24 on
  kFloat8E5M2 = 11,
};

// ncclRedOp_t
enum class NcclReduce : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

// The functions of NCCL that the product uses.
class NcclApi {
 public:
  virtual ~NcclApi() = default;

  // Returns the version as NCCL encodes it: 22807 is 2.28.7.
  virtual int version() const = 0;
  // Returns true if NCCL reduces fp8, which it does from 2.24 on.
  bool has_fp8() const { return has_fp8(version()); }
  static bool has_fp8(int version) { return version >= 22400; }
  // Oldest supported version. The product needs non-blocking communicators with a config, and
  // ncclCommSplit.
  static constexpr int kLeastVersion = 21801;

  // Returns NCCL's text for a result, such as "unhandled system error (run with NCCL_DEBUG=INFO for
  // details)". Appends NCCL's last error of the communicator, which may be null.
  virtual std::string describe(NcclResult result, NcclComm comm) const = 0;

  // Creates the id of a new communicator on one rank. All its ranks need it for init_rank().
  virtual NcclResult unique_id(NcclUniqueId* out) = 0;
  // Begins to create a communicator on the current device of this thread. Does not block.
  virtual NcclResult init_rank(NcclComm* out, int size, const NcclUniqueId& id, int rank) = 0;
  // Begins to split `comm`. The new communicator has the ranks with the same color (at least 0), in
  // the order of their keys, and shares no resources with `comm`.
  //
  // All ranks of `comm` call it, in the same order relative to their other calls. `comm` is in
  // progress until *out is set; then *out is in progress. `out` must stay valid until `comm` is
  // done or aborted.
  virtual NcclResult split(NcclComm comm, int color, int key, NcclComm* out) = 0;
  // Returns in `out` the state of the last call: kInProgress until it is complete, then its result.
  virtual NcclResult async_error(NcclComm comm, NcclResult* out) = 0;
  // Frees a communicator without pending work.
  virtual NcclResult destroy(NcclComm comm) = 0;
  // Ends pending work of the communicator on this rank, and frees it.
  virtual NcclResult abort(NcclComm comm) = 0;

  // Begin and end a group of calls, which NCCL starts together.
  virtual NcclResult group_start() = 0;
  virtual NcclResult group_end() = 0;

  // Enqueue an op on `stream`, which is a cudaStream_t. `in` and `out` may be equal for an in-place
  // op.
  virtual NcclResult all_reduce(const void* in, void* out, size_t count, NcclType type,
                                NcclReduce op, NcclComm comm, void* stream) = 0;
  virtual NcclResult broadcast(const void* in, void* out, size_t count, NcclType type, int root,
                               NcclComm comm, void* stream) = 0;
  virtual NcclResult reduce(const void* in, void* out, size_t count, NcclType type, NcclReduce op,
                            int root, NcclComm comm, void* stream) = 0;
  virtual NcclResult all_gather(const void* in, void* out, size_t count, NcclType type,
                                NcclComm comm, void* stream) = 0;
  virtual NcclResult reduce_scatter(const void* in, void* out, size_t count, NcclType type,
                                    NcclReduce op, NcclComm comm, void* stream) = 0;
  virtual NcclResult send(const void* in, size_t count, NcclType type, int peer, NcclComm comm,
                          void* stream) = 0;
  virtual NcclResult recv(void* out, size_t count, NcclType type, int peer, NcclComm comm,
                          void* stream) = 0;
};

}  // namespace ringdist::gpu
