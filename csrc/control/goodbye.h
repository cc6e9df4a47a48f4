// How this process leaves the control plane.
//
//   kHere    nothing was said
//   kSaying  goodbye is on its way: for so long connections stay
//   kGone    nothing more is said, and nothing reported
#pragma once

#include <cstdint>
#include <future>
#include <memory>

#include "base/clock.h"
#include "base/error.h"

namespace ringdist {

class ControlGoodbye {
 public:
  enum class State : uint8_t { kHere, kSaying, kGone };
  static constexpr Duration kTime = Milliseconds(200);

  State state() const { return state_; }
  bool here() const { return state_ == State::kHere; }
  bool saying() const { return state_ == State::kSaying; }
  // It leaves because its process is about to end: connections stay open until the kernel closes
  // them, which tells others when.
  bool process_ends() const { return process_ends_; }

  // `answer` is for who waits until it is said. Only once.
  void begin(bool process_ends, std::shared_ptr<std::promise<Error>> answer, TimePoint now) {
    state_ = State::kSaying;
    process_ends_ = process_ends;
    answer_ = std::move(answer);
    until_ = now + kTime;
  }
  bool over(TimePoint now) const { return now >= until_; }
  // The words are out: on all connections.
  bool told() const { return told_; }
  void set_told() { told_ = true; }
  // Said, or cut short: the control thread ends.
  void end() {
    if (saying()) answer_->set_value({});
    state_ = State::kGone;
  }

 private:
  State state_ = State::kHere;
  bool process_ends_ = false;
  bool told_ = false;
  std::shared_ptr<std::promise<Error>> answer_;
  TimePoint until_{};
};

}  // namespace ringdist
