// NcclApi by the NCCL library of this process. It is the one that PyTorch has loaded, if there is
// one.
#pragma once

#include <climits>
#include <cstddef>
#include <memory>

#include "base/error.h"
#include "cuda/api/nccl_api.h"

namespace ringdist::gpu {

// ncclConfig_t of version 2.18, the oldest that is supported. Later versions read its size, and
// treat the fields that are missing as unset. Order and types of the fields are those of nccl.h.
// kUnset leaves the choice to NCCL.
struct NcclConfig {
  static constexpr int kUnset = INT_MIN;

  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21801;  // version of this layout
  int blocking = kUnset;
  int cga_cluster_size = kUnset;
  int least_ctas = kUnset;
  int most_ctas = kUnset;
  const char* net_name = nullptr;
  int split_share = kUnset;
};

// Calls NCCL through function pointers that dlsym() returns. See NcclApi for the contracts.
class LoadedNccl final : public NcclApi {
 public:
  // Loads NCCL. It stays loaded. Error kSystem: there is no NCCL or it is too old. The message
  // explains how to install one.
  static Result<std::unique_ptr<NcclApi>> load();

  int version() const override { return version_; }
  std::string describe(NcclResult result, NcclComm comm) const override;
  NcclResult unique_id(NcclUniqueId* out) override;
  NcclResult init_rank(NcclComm* out, int size, const NcclUniqueId& id, int rank) override;
  NcclResult split(NcclComm comm, int color, int key, NcclComm* out) override;
  NcclResult async_error(NcclComm comm, NcclResult* out) override;
  NcclResult destroy(NcclComm comm) override;
  NcclResult abort(NcclComm comm) override;
  NcclResult group_start() override;
  NcclResult group_end() override;
  NcclResult all_reduce(const void* in, void* out, size_t count, NcclType type, NcclReduce op,
                        NcclComm comm, void* stream) override;
  NcclResult broadcast(const void* in, void* out, size_t count, NcclType type, int root,
                       NcclComm comm, void* stream) override;
  NcclResult reduce(const void* in, void* out, size_t count, NcclType type, NcclReduce op, int root,
                    NcclComm comm, void* stream) override;
  NcclResult all_gather(const void* in, void* out, size_t count, NcclType type, NcclComm comm,
                        void* stream) override;
  NcclResult reduce_scatter(const void* in, void* out, size_t count, NcclType type, NcclReduce op,
                            NcclComm comm, void* stream) override;
  NcclResult send(const void* in, size_t count, NcclType type, int peer, NcclComm comm,
                  void* stream) override;
  NcclResult recv(void* out, size_t count, NcclType type, int peer, NcclComm comm,
                  void* stream) override;

 private:
  // Signatures of nccl.h. tests/cpp/cuda/nccl/nccl_types_test.cc compares them with it.
  struct Functions {
    NcclResult (*ncclGetVersion)(int*);
    const char* (*ncclGetErrorString)(NcclResult);
    const char* (*ncclGetLastError)(NcclComm);
    NcclResult (*ncclGetUniqueId)(NcclUniqueId*);
    NcclResult (*ncclCommInitRankConfig)(NcclComm*, int, NcclUniqueId, int, NcclConfig*);
    NcclResult (*ncclCommSplit)(NcclComm, int, int, NcclComm*, NcclConfig*);
    NcclResult (*ncclCommGetAsyncError)(NcclComm, NcclResult*);
    NcclResult (*ncclCommDestroy)(NcclComm);
    NcclResult (*ncclCommAbort)(NcclComm);
    NcclResult (*ncclGroupStart)();
    NcclResult (*ncclGroupEnd)();
    NcclResult (*ncclAllReduce)(const void*, void*, size_t, NcclType, NcclReduce, NcclComm, void*);
    NcclResult (*ncclBroadcast)(const void*, void*, size_t, NcclType, int, NcclComm, void*);
    NcclResult (*ncclReduce)(const void*, void*, size_t, NcclType, NcclReduce, int, NcclComm,
                             void*);
    NcclResult (*ncclAllGather)(const void*, void*, size_t, NcclType, NcclComm, void*);
    NcclResult (*ncclReduceScatter)(const void*, void*, size_t, NcclType, NcclReduce, NcclComm,
                                    void*);
    NcclResult (*ncclSend)(const void*, size_t, NcclType, int, NcclComm, void*);
    NcclResult (*ncclRecv)(void*, size_t, NcclType, int, NcclComm, void*);
  };

  LoadedNccl() = default;
  // Looks up all functions. Error kSystem names one that is missing.
  Error find_functions(void* library);

  Functions nccl_{};
  int version_ = 0;
};

}  // namespace ringdist::gpu
