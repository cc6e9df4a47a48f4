#include "engine/op/call_sample.h"

#include <algorithm>
#include <utility>

#include "base/serialize.h"

namespace ringdist {
namespace {

constexpr size_t kMostName = 256;  // bytes of a name

int64_t ticks(TimePoint when) { return when.time_since_epoch().count(); }
TimePoint time_of(int64_t ticks) { return TimePoint(Duration(ticks)); }

void put(Writer& out, const SampledCall& call) {
  out.put(call.number).put(ticks(call.began)).put(call.usage);
  out.put(call.elsewhere).put(call.other_group);
}

SampledCall get_call(Reader& in) {
  SampledCall out;
  out.number = in.get<uint64_t>();
  out.began = time_of(in.get<int64_t>());
  out.usage = in.get<ThreadUsage>();
  out.elsewhere = in.get<uint32_t>();
  out.other_group = in.get<uint64_t>();
  return out;
}

}  // namespace

std::string CallSample::encode() const {
  Writer out;
  out.put_string(host).put_string(place).put(ticks(now)).put(static_cast<int64_t>(paused.count()));
  out.put(static_cast<uint32_t>(groups.size()));
  for (const GroupCalls& group : groups) {
    out.put(group.id).put_string(group.name).put(group.size).put(group.rank);
    out.put(static_cast<uint32_t>(group.calls.size()));
    for (const SampledCall& call : group.calls) put(out, call);
  }
  out.put(static_cast<uint32_t>(links.size()));
  for (const LinkProgress& link : links) {
    out.put_string(link.local).put_string(link.remote);
    out.put(link.bytes).put(link.busy).put(link.resent).put(link.rtt);
  }
  const auto bytes = out.take();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::optional<CallSample> CallSample::decode(ConstBytes bytes) {
  Reader in(bytes);
  CallSample out;
  out.host = in.get_text(kMostName);
  out.place = in.get_text(kMostName);
  out.now = time_of(in.get<int64_t>());
  out.paused = Duration(in.get<int64_t>());
  const auto groups = in.get<uint32_t>();
  if (groups > kMostGroups) return std::nullopt;
  for (uint32_t i = 0; i < groups && in.ok(); ++i) {
    GroupCalls group;
    group.id = in.get<uint64_t>();
    group.name = in.get_text(kMostName);
    group.size = in.get<int32_t>();
    group.rank = in.get<int32_t>();
    const auto calls = in.get<uint32_t>();
    if (calls > kMostCalls) return std::nullopt;
    for (uint32_t k = 0; k < calls && in.ok(); ++k) group.calls.push_back(get_call(in));
    out.groups.push_back(std::move(group));
  }
  const auto links = in.get<uint32_t>();
  if (links > kMostLinks) return std::nullopt;
  for (uint32_t i = 0; i < links && in.ok(); ++i) {
    LinkProgress link;
    link.local = in.get_text(kMostName);
    link.remote = in.get_text(kMostName);
    link.bytes = in.get<uint64_t>();
    link.busy = in.get<uint64_t>();
    link.resent = in.get<uint64_t>();
    link.rtt = in.get<uint32_t>();
    out.links.push_back(std::move(link));
  }
  if (!in.ended()) return std::nullopt;
  return out;
}

}  // namespace ringdist
