#include "transport/staging.h"

#include "base/check.h"

namespace ringdist {

std::optional<Bytes> StagingPool::take(size_t bytes) {
  check(bytes <= buffer_bytes_, "reservation above the transport's largest message");
  if (free_.empty()) {
    if (all_.size() == max_buffers_) return std::nullopt;
    all_.push_back(std::make_unique_for_overwrite<std::byte[]>(buffer_bytes_));
    free_.push_back(all_.back().get());
  }
  std::byte* data = free_.back();
  free_.pop_back();
  return Bytes(data, bytes);
}

void StagingPool::give_back(Bytes buffer) { free_.push_back(buffer.data()); }

}  // namespace ringdist
