#include "support/checked/memory.h"

#include "base/check.h"

namespace ringdist::checked {
namespace {

Replay*& running() {
  static thread_local Replay* replay = nullptr;
  return replay;
}

}  // namespace

std::string name_of(Kind kind) {
  switch (kind) {
    case Kind::kLoad:
      return "loads";
    case Kind::kStore:
      return "stores";
    case Kind::kRead:
      return "reads";
    case Kind::kWrite:
      return "writes";
    case Kind::kRing:
      return "rings";
    case Kind::kWait:
      return "waits for";
  }
  return "?";
}

std::string name_of(std::memory_order order) {
  switch (order) {
    case std::memory_order_relaxed:
      return "relaxed";
    case std::memory_order_consume:
      return "consume";
    case std::memory_order_acquire:
      return "acquire";
    case std::memory_order_release:
      return "release";
    case std::memory_order_acq_rel:
      return "acq_rel";
    case std::memory_order_seq_cst:
      return "seq_cst";
  }
  return "?";
}

Replay::Replay(std::span<const uint64_t> past) : past_(past) {
  check(running() == nullptr, "a checked thread within another");
  running() = this;
}

Replay::~Replay() { running() = nullptr; }

uint64_t Replay::perform(const Action& action) {
  Replay* self = running();
  check(self != nullptr, "checked memory is for threads of explore() only");
  if (self->past_.empty()) throw Stop{action};
  const uint64_t result = self->past_.front();
  self->past_ = self->past_.subspan(1);
  return result;
}

}  // namespace ringdist::checked
