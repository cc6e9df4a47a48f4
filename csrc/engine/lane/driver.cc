#include "engine/lane/driver.h"

#include <utility>

namespace ringdist {
namespace {

thread_local bool drives = false;

}  // namespace

InProgressScope::InProgressScope() : before_(std::exchange(drives, true)) {}
InProgressScope::~InProgressScope() { drives = before_; }

bool drives_a_lane() { return drives; }

}  // namespace ringdist
