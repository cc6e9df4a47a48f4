#include "torch/work/future.h"

#include <utility>

namespace ringdist {

CombinedFuture::CombinedFuture(std::vector<at::Tensor> value, size_t parts)
    : value_(std::move(value)), left_(parts) {
  if (parts == 0) mark(*future_, nullptr, value_);
}

void CombinedFuture::arrive(const std::exception_ptr& error) {
  {
    std::lock_guard lock(mutex_);
    --left_;
    if (ended_ || (!error && left_ > 0)) return;
    ended_ = true;  // the other parts may need the group's timeout to fail, too
  }
  // Without the mutex, because callbacks run in here and may take locks of their own.
  mark(*future_, error, value_);
}

}  // namespace ringdist
