// Every call of NCCL that is made: the seam that tests fake.
//
// As nccl.h has them: a communicator that was made not to block may answer kInProgress, which is
// asked after by async_error(). Sizes are elements. Calls for one communicator come from one thread
// at a time; group_start() and group_end() bracket the calls of the thread that made them.
#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace ringdist::gpu {

// NCCL's types as its binary interface has them since 2.18, declared here so that a build needs no
// nccl.h; tests/cpp/cuda/nccl/nccl_types_test.cc holds them against one where it is.
using NcclComm = void*;  // ncclComm_t

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

class NcclApi {
 public:
  virtual ~NcclApi() = default;

  // 22807 is 2.28.7.
  virtual int version() const = 0;
  // It reduces fp8, from 2.24 on.
  bool has_fp8() const { return has_fp8(version()); }
  static bool has_fp8(int version) { return version >= 22400; }
  // The oldest that is taken: communicators that do not block, with a config, and can be split.
  static constexpr int kLeastVersion = 21801;

  // "unhandled system error (run with NCCL_DEBUG=INFO for details)", and what it said last of this
  // communicator, which may be null.
  virtual std::string describe(NcclResult result, NcclComm comm) const = 0;

  virtual NcclResult unique_id(NcclUniqueId* out) = 0;
  // On the device that is current in this thread; does not block.
  virtual NcclResult init_rank(NcclComm* out, int size, const NcclUniqueId& id, int rank) = 0;
  // A communicator of those ranks of `comm` that give the same color, at least 0, in the order of
  // their keys; it shares nothing with `comm`. All ranks of `comm` call it, in one order with their
  // other calls. `comm` is in progress until *out is there, then *out is; `out` stays until `comm`
  // is no longer, or was aborted.
  virtual NcclResult split(NcclComm comm, int color, int key, NcclComm* out) = 0;
  // Of what was started last: kInProgress until it has been.
  virtual NcclResult async_error(NcclComm comm, NcclResult* out) = 0;
  virtual NcclResult destroy(NcclComm comm) = 0;
  // Ends what it does, on this rank, and frees it.
  virtual NcclResult abort(NcclComm comm) = 0;

  virtual NcclResult group_start() = 0;
  virtual NcclResult group_end() = 0;

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
