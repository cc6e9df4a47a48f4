#include "engine/progress/in_progress_scope.h"

#include <utility>

namespace ringdist {
namespace {

thread_local bool drives = false;

}  // namespace

InProgressScope::InProgressScope() : before_(std::exchange(drives, true)) {}
InProgressScope::~InProgressScope() { drives = before_; }

bool in_progress_loop() { return drives; }

}  // namespace ringdist
