// What the ranks of one op have called, told to each other on the host while the stream goes on: of
// ops whose bytes do not pass through the host's, where nobody else would notice that they differ.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/stream/host_link.h"
#include "plan/fingerprint.h"

namespace ringdist::gpu {

class ComparedCalls : public std::enable_shared_from_this<ComparedCalls> {
 public:
  static Result<std::shared_ptr<ComparedCalls>> make(const DeviceOp& op, const Staging& staging);
  ComparedCalls(const DeviceOp& op, const Staging& staging, std::shared_ptr<std::byte> flag);

  // When the stream gets there. Where ranks disagree, `staging.failed` is told.
  Error begin(CudaApi& cuda, Stream stream);
  // What the stream gets from now on comes after the comparison.
  Error end(CudaApi& cuda, Stream stream);

 private:
  uint32_t* word() const { return reinterpret_cast<uint32_t*>(flag_.get()); }
  HostOp gathering();
  void ended(const Error& error);
  Error disagreement() const;

  const std::shared_ptr<GroupAccess> group_;
  const std::shared_ptr<FirstError> failed_;
  const std::shared_ptr<std::byte> flag_;
  const std::string text_;
  const int rank_;
  Fingerprint own_;
  std::vector<Fingerprint> all_;
};

}  // namespace ringdist::gpu
