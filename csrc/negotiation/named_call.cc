#include "negotiation/named_call.h"

#include <utility>

#include "base/check.h"

namespace ringdist {

void FusedCalls::add(std::vector<OpRequest> parts) {
  for (OpRequest& part : parts) keep(std::exchange(part.keep_alive, nullptr));
  if (requests_.empty()) {
    requests_ = std::move(parts);
    return;
  }
  check(requests_.size() == 1 && parts.size() == 1, "only calls of one op travel together");
  merge(parts[0]);
}

void FusedCalls::merge(const OpRequest& part) {
  OpRequest& all = requests_[0];
  check(part.kind == Collective::kAllreduce && all.kind == Collective::kAllreduce &&
            part.dtype == all.dtype && part.reduce_op == all.reduce_op && !part.codec_map &&
            !all.codec_map && part.device_stream.has_value() == all.device_stream.has_value(),
        "calls of one batch are alike");
  part.output.for_each(0, part.output.count(), [&](Bytes span) {
    const auto count = static_cast<int64_t>(span.size() / all.output.element_size());
    all.output.append(span.data(), count);
  });
  all.count = all.output.count();
}

std::vector<OpRequest> FusedCalls::take_requests() {
  const auto memory = std::make_shared<std::vector<std::shared_ptr<void>>>(std::move(kept_));
  for (OpRequest& request : requests_) request.keep_alive = memory;
  open_ = requests_.size();
  running_ = std::make_shared<Running::element_type>();
  for (const auto& end : ends_) end->request.keep_alive = running_;
  return std::move(requests_);
}

std::vector<std::shared_ptr<Op>> FusedCalls::take_ends() {
  running_.reset();
  return std::exchange(ends_, {});
}

bool FusedCalls::end_one(const Error& error) {
  check(open_ > 0, "an op ends once");
  if (error && !error_) error_ = error;
  return --open_ == 0;
}

}  // namespace ringdist
