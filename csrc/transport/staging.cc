#include "transport/staging.h"

#include "base/check.h"
#include "transport/fan_out.h"

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

void StagingPool::send(Transport& transport, Bytes buffer, size_t used,
                       std::span<const Outgoing> to, SendDone done) {
  if (to.empty()) {
    give_back(buffer);
    return done({});
  }
  const SendDone one_done =
      fan_out(to.size(), [this, buffer, done = std::move(done)](const Error& error) {
        give_back(buffer);
        done(error);
      });
  for (const auto& out : to) transport.send(out.peer, out.header, buffer.first(used), one_done);
}

}  // namespace ringdist
