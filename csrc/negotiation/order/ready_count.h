// Who is ready for one call, as one rank of the tree sees it: each of its children stands for all
// ranks below that.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "negotiation/order/call_messages.h"

namespace ringdist {

// How two that have the same words differ, in words.
using DescribeDifference =
    std::function<std::string(const CallDescription&, const CallDescription&)>;

class ReadyCount {
 public:
  // `members`: the children, and the rank itself.
  ReadyCount(size_t members, DescribeDifference describe_difference)
      : describe_difference_(std::move(describe_difference)), is_ready_(members) {}

  // `call`: with its name and description. What it says otherwise than the first one is a conflict,
  // in words. False, and nothing is done: that member is ready already.
  bool add(size_t member, ReadyCall call);

  // All of them, but for those of which `excused` is true.
  bool is_complete(const std::vector<bool>& excused) const;
  // One that is not ready, or nothing.
  std::optional<size_t> missing() const;
  // Of all together.
  ReadyCall take() { return std::move(call_); }

 private:
  std::string disagreement(const ReadyCall& call) const;

  const DescribeDifference describe_difference_;
  ReadyCall call_;
  bool is_empty_ = true;
  std::vector<bool> is_ready_;
};

}  // namespace ringdist
