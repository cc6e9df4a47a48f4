// Every call of NCCL that is made: the seam that tests fake.
//
// As nccl.h has them: a communicator that was made not to block may answer kInProgress, which is
// asked after by async_error(). Sizes are elements. Calls for one communicator come from one thread
// at a time; group_start() and group_end() bracket the calls of the thread that made them.
#pragma once

#include <cstddef>
#include <string>

#include "cuda/api/nccl_types.h"

namespace ringdist::gpu {

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
