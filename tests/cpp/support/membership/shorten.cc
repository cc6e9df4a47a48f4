#include "support/membership/shorten.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace ringdist::membership {
namespace {

std::vector<Scenario> simpler(const Scenario& from) {
  std::vector<Scenario> out;
  for (size_t i = 0; i < from.faults.size(); ++i) {
    out.push_back(from);
    out.back().faults.erase(out.back().faults.begin() + static_cast<std::ptrdiff_t>(i));
  }
  const auto with = [&](const auto& change) {
    Scenario one = from;
    change(one);
    if (!(one == from)) out.push_back(std::move(one));
  };
  with([](Scenario& one) { one.jitter = 0; });
  with([](Scenario& one) { one.rough = false; });
  with([](Scenario& one) { one.store_process = -1; });
  with([](Scenario& one) { one.store_host = 0; });
  with([](Scenario& one) { one.latency = 1; });
  // Drops the last member if no fault concerns it.
  const auto last = static_cast<int>(from.hosts.size()) - 1;
  const bool named = std::any_of(from.faults.begin(), from.faults.end(), [&](const Fault& fault) {
    return fault.kind != Fault::Kind::kJoin && fault.who == last;
  });
  if (!named && last >= 2) with([](Scenario& one) { one.hosts.pop_back(); });
  return out;
}

}  // namespace

Scenario shorten(Scenario scenario, const std::function<bool(const Scenario&)>& fails) {
  for (bool shorter = true; shorter;) {
    shorter = false;
    for (Scenario& one : simpler(scenario)) {
      if (!fails(one)) continue;
      scenario = std::move(one);
      shorter = true;
      break;
    }
  }
  return scenario;
}

}  // namespace ringdist::membership
