// Fake of NCCL without devices, for all ranks of a test in one process. Memory is host memory, and
// enqueued work runs on support/fake_streams.h. As in NCCL, a group of calls is one piece of work
// on its stream. It proceeds when all its calls have met their counterparts: collectives meet by
// call order on all ranks of the communicator, sends and receives meet pairwise. If a call of a
// group fails, the group starts nothing. Usage that would make NCCL hang or misbehave fails the
// test.
//
// Thread-safe.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cuda/api/nccl_api.h"
#include "support/fake_streams.h"

namespace ringdist {

class FakeNccl final : public gpu::NcclApi {
 public:
  explicit FakeNccl(FakeStreams& streams, int version = 22907)
      : streams_(streams), version_(version) {}

  // Returns the id of the first communicator that will be created.
  static std::string first_id() { return "fake 1"; }
  // Makes the next call with this name, such as "init_rank", return `result`.
  void fail_next(const std::string& call, gpu::NcclResult result);
  // Makes the n-th call of any name, counted from 0, return `result`.
  void fail_call(int n, gpu::NcclResult result) {
    std::lock_guard lock(mutex_);
    fails_at_[n] = result;
  }
  int calls() const {
    std::lock_guard lock(mutex_);
    return all_calls_;
  }
  // Makes each operation that was begun answer this many queries with "in progress".
  void set_lag(int questions) {
    std::lock_guard lock(mutex_);
    lag_ = questions;
  }
  // Makes async_error() return `result` for this communicator.
  void break_comm(gpu::NcclComm comm, gpu::NcclResult result);
  // Returns the number of communicators that were neither destroyed nor aborted.
  size_t alive() const;
  int calls(const std::string& call) const;

  int version() const override { return version_; }
  std::string describe(gpu::NcclResult result, gpu::NcclComm comm) const override;
  gpu::NcclResult unique_id(gpu::NcclUniqueId* out) override;
  gpu::NcclResult init_rank(gpu::NcclComm* out, int size, const gpu::NcclUniqueId& id,
                            int rank) override;
  gpu::NcclResult split(gpu::NcclComm comm, int color, int key, gpu::NcclComm* out) override;
  gpu::NcclResult async_error(gpu::NcclComm comm, gpu::NcclResult* out) override;
  gpu::NcclResult destroy(gpu::NcclComm comm) override;
  gpu::NcclResult abort(gpu::NcclComm comm) override;
  gpu::NcclResult group_start() override;
  gpu::NcclResult group_end() override;
  gpu::NcclResult all_reduce(const void* in, void* out, size_t count, gpu::NcclType type,
                             gpu::NcclReduce op, gpu::NcclComm comm, void* stream) override;
  gpu::NcclResult broadcast(const void* in, void* out, size_t count, gpu::NcclType type, int root,
                            gpu::NcclComm comm, void* stream) override;
  gpu::NcclResult reduce(const void* in, void* out, size_t count, gpu::NcclType type,
                         gpu::NcclReduce op, int root, gpu::NcclComm comm, void* stream) override;
  gpu::NcclResult all_gather(const void* in, void* out, size_t count, gpu::NcclType type,
                             gpu::NcclComm comm, void* stream) override;
  gpu::NcclResult reduce_scatter(const void* in, void* out, size_t count, gpu::NcclType type,
                                 gpu::NcclReduce op, gpu::NcclComm comm, void* stream) override;
  gpu::NcclResult send(const void* in, size_t count, gpu::NcclType type, int peer,
                       gpu::NcclComm comm, void* stream) override;
  gpu::NcclResult recv(void* out, size_t count, gpu::NcclType type, int peer, gpu::NcclComm comm,
                       void* stream) override;

 private:
  struct Ring;  // a communicator with all its ranks
  struct Comm;  // one rank's handle of a communicator
  struct Part;  // one call of a rank
  struct Split;
  using PartPtr = std::shared_ptr<Part>;

  gpu::NcclResult enter(const std::string& call);
  // Validates a call and returns its immediate result.
  gpu::NcclResult check(Part& part, gpu::NcclComm comm, void* stream);
  gpu::NcclResult add(Part part, gpu::NcclComm comm, void* stream);
  void enqueue(std::vector<PartPtr> parts);
  void arrive(const PartPtr& part);
  void meet(const PartPtr& part);
  void join(const PartPtr& part);
  static void compute(const std::vector<PartPtr>& by_rank);
  gpu::NcclComm make_comm(const std::shared_ptr<Ring>& ring, int rank);
  void finish(std::vector<Split> all);
  std::shared_ptr<Comm> find(gpu::NcclComm comm) const;
  gpu::NcclResult let_go(gpu::NcclComm comm, bool aborts);

  FakeStreams& streams_;
  const int version_;
  mutable std::recursive_mutex mutex_;
  std::map<std::string, std::shared_ptr<Ring>> rings_;  // by unique id
  std::map<gpu::NcclComm, std::shared_ptr<Comm>> comms_;
  std::map<std::string, gpu::NcclResult> fails_;
  std::map<std::string, int> calls_;
  int all_calls_ = 0;
  std::map<int, gpu::NcclResult> fails_at_;
  int lag_ = 0;
  int ids_ = 0;
};

}  // namespace ringdist
