#include "os/cpu_set.h"

#include <charconv>
#include <fstream>

namespace ringdist {
namespace {

// Removes a number from the front of `text` and returns it. Returns -1 if there is none, or if it
// is too large.
int take_number(std::string_view& text) {
  int out = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return error == std::errc() && out < CPU_SETSIZE ? out : -1;
}

// Removes the character `one` from the front of `text`. Returns false if `text` begins otherwise.
bool take(std::string_view& text, char one) {
  if (!text.starts_with(one)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

// An empty text is an empty set. near() relies on that where the kernel reports no list.
std::optional<CpuSet> CpuSet::parse(std::string_view text) {
  CpuSet out;
  while (!text.empty()) {
    const int first = take_number(text);
    const int last = take(text, '-') ? take_number(text) : first;
    if (first < 0 || last < first) return std::nullopt;
    for (int cpu = first; cpu <= last; ++cpu) CPU_SET(static_cast<size_t>(cpu), &out.set_);
    if (!text.empty() && (!take(text, ',') || text.empty())) return std::nullopt;
  }
  return out;
}

CpuSet CpuSet::near(const std::string& address, const std::string& sys) {
  std::ifstream file(sys + "/bus/pci/devices/" + address + "/local_cpulist");
  std::string line;
  std::getline(file, line);
  return parse(line).value_or(CpuSet());
}

CpuSet CpuSet::of(pthread_t thread) {
  CpuSet out;
  if (pthread_getaffinity_np(thread, sizeof out.set_, &out.set_) != 0) return {};
  return out;
}

CpuSet CpuSet::operator&(const CpuSet& other) const {
  CpuSet out;
  CPU_AND(&out.set_, &set_, &other.set_);
  return out;
}

bool CpuSet::bind(pthread_t thread) const {
  return pthread_setaffinity_np(thread, sizeof set_, &set_) == 0;
}

bool CpuSet::narrow(pthread_t thread) const {
  const CpuSet now = of(thread);
  const CpuSet both = now & *this;
  return !both.empty() && both != now && both.bind(thread);
}

}  // namespace ringdist
