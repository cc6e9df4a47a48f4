#include "negotiation/batch.h"

#include <utility>

#include "base/check.h"

namespace ringdist {

void Batch::add(OpRequest part, std::shared_ptr<Op> end) {
  if (end) ends_.push_back(std::move(end));
  memory_.push_back(std::exchange(part.keep_alive, nullptr));
  if (memory_.size() == 1) {
    request_ = std::move(part);
    return;
  }
  check(part.kind == Collective::kAllreduce && request_.kind == Collective::kAllreduce &&
            part.dtype == request_.dtype && part.reduce_op == request_.reduce_op && !part.blocks &&
            !request_.blocks,
        "calls of one batch are alike");
  part.output.for_each(0, part.output.count(), [&](Bytes span) {
    request_.output.append(span.data(),
                           static_cast<int64_t>(span.size() / request_.output.element_size()));
  });
  request_.count = request_.output.count();
}

OpRequest Batch::take_request() {
  request_.keep_alive = std::make_shared<std::vector<std::shared_ptr<void>>>(std::move(memory_));
  return std::move(request_);
}

}  // namespace ringdist
