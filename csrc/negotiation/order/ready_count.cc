#include "negotiation/order/ready_count.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ringdist {
namespace {

std::string words_of(const ReadyCall& one) {
  return "rank " + std::to_string(one.rank) + " called " + one.call.description.words;
}

}  // namespace

bool ReadyCount::add(size_t member, ReadyCall call) {
  if (is_ready_[member]) return false;
  is_ready_[member] = true;
  if (std::exchange(is_empty_, false)) {
    call_ = std::move(call);
    return true;
  }
  call_.last = call.last;
  if (call_.conflict.empty()) {
    if (!call.conflict.empty())
      call_.conflict = std::move(call.conflict);
    else if (!(call.call.description == call_.call.description))
      call_.conflict = disagreement(call);
  }
  if (!call_.absent) call_.absent = call.absent;
  std::ranges::move(call.extras, std::back_inserter(call_.extras));
  return true;
}

std::string ReadyCount::disagreement(const ReadyCall& call) const {
  const CallDescription &ours = call_.call.description, &other = call.call.description;
  const std::string both = words_of(call_) + ", " + words_of(call);
  return ours.words == other.words ? both + ": " + describe_difference_(ours, other) : both;
}

bool ReadyCount::is_complete(const std::vector<bool>& excused) const {
  for (size_t member = 0; member < is_ready_.size(); ++member)
    if (!is_ready_[member] && !excused[member]) return false;
  return true;
}

std::optional<size_t> ReadyCount::missing() const {
  const auto found = std::ranges::find(is_ready_, false);
  if (found == is_ready_.end()) return std::nullopt;
  return static_cast<size_t>(found - is_ready_.begin());
}

}  // namespace ringdist
