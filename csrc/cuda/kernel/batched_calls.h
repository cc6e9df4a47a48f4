// Combines many calls into one launch, for the parameters of a bucket.
//
// A body is the work of a kernel on one call. It has batches() batches, and operator()(worker,
// index) does one of them. A worker is a warp or a thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "cuda/kernel/calls.h"
#include "cuda/warp/device.h"

namespace ringdist::gpu {

// parameter bytes that every device allows in a launch
inline constexpr size_t kLaunchBytes = 4096;

// Several bodies of one type as one body. The batches of each body follow those of the body before.
template <typename Body>
class BatchedCalls {
 public:
  static constexpr int kScratch = Body::kScratch;
  // The most bodies of a launch. 64 bytes are left for the count and for padding.
  static constexpr int kMost =
      static_cast<int>((kLaunchBytes - 64) / (sizeof(Body) + sizeof(int64_t)));

  void clear() { count_ = 0; }
  bool full() const { return count_ == kMost; }
  int count() const { return count_; }
  const Body& first() const { return bodies_[0]; }
  // Appends a body. There must be room.
  void add(const Body& body) {
    ends_[count_] = batches() + body.batches();
    bodies_[count_] = body;
    ++count_;
  }

  constexpr int64_t batches() const { return count_ == 0 ? 0 : ends_[count_ - 1]; }

  // Does batch `index` of all bodies. Finds its body by a binary search in ends_.
  template <typename Worker>
  RINGDIST_DEVICE void operator()(Worker& worker, int64_t index) const {
    int at = 0;  // the first body that ends after the index
    for (int last = count_ - 1; at < last;) {
      const int middle = (at + last) / 2;
      if (index < ends_[middle])
        last = middle;
      else
        at = middle + 1;
    }
    bodies_[at](worker, at == 0 ? index : index - ends_[at - 1]);
  }

 private:
  int count_ = 0;
  int64_t ends_[kMost];  // batches of the bodies up to each one, including it
  Body bodies_[kMost];
};

// A list of types.
template <typename... Bodies>
struct BodyTypes {};

// Collects bodies by type, and calls LaunchError launch(body) once for many bodies of a type,
// passing their BatchedCalls. A single body is passed as it is.
template <typename Launch, typename... Bodies>
class CallGatherer {
 public:
  CallGatherer(BodyTypes<Bodies...>, const Launch& launch) : launch_(launch) {}

  template <typename Body>
  void add(const Body& body) {
    auto& alike = std::get<BatchedCalls<Body>>(gathered_);
    if (alike.full()) flush(alike);
    alike.add(body);
  }
  // Launches the rest. Returns the first error.
  LaunchError finish() {
    std::apply([this](auto&... alike) { (flush(alike), ...); }, gathered_);
    return error_;
  }

 private:
  // A single body needs no search for its batches, so it is launched directly.
  template <typename Body>
  void flush(BatchedCalls<Body>& alike) {
    if (alike.count() == 0) return;
    const LaunchError error = alike.count() == 1 ? launch_(alike.first()) : launch_(alike);
    if (error_ == 0) error_ = error;
    alike.clear();
  }

  // Checks the parameter bytes of a launch, which also has the number of all batches.
  static_assert(((sizeof(BatchedCalls<Bodies>) + sizeof(int64_t) <= kLaunchBytes) && ...));

  const Launch& launch_;
  std::tuple<BatchedCalls<Bodies>...> gathered_;
  LaunchError error_ = 0;
};

}  // namespace ringdist::gpu
