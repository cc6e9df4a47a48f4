#include "engine/lane/driver.h"

#include <utility>

namespace ringdist {
namespace {

thread_local bool drives = false;

}  // namespace

Driver::Driver() : before_(std::exchange(drives, true)) {}
Driver::~Driver() { drives = before_; }

bool drives_a_lane() { return drives; }

}  // namespace ringdist
