// The hook that DDP's reducer calls for each bucket, without Python.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "torch/ddp/ddp_compressor.h"

namespace ringdist {

class CompressHook final : public c10d::CppCommHookInterface<std::shared_ptr<DdpCompressor>> {
 public:
  using CppCommHookInterface::CppCommHookInterface;
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    return state_->run(bucket);
  }
};

// Raises c10::Error if the reducer has a hook already.
inline void register_comm_hook(c10d::Reducer& reducer, std::shared_ptr<DdpCompressor> compression) {
  reducer.register_comm_hook(std::make_unique<CompressHook>(std::move(compression)));
}

}  // namespace ringdist
