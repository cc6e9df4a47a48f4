#include "engine/op/op_log.h"

#include <chrono>

#include "base/describe.h"
#include "base/dtype.h"
#include "base/json.h"
#include "plan/op_spec.h"

namespace ringdist {

void OpLog::begin(Op& op, uint64_t nonce, int rank) {
  if (entries_.empty()) entries_.resize(kKept);
  op.record = ++last_;
  Entry& entry = entries_[last_ % kKept];
  entry.record = last_;
  entry.nonce = nonce;
  entry.number = op.number;
  entry.input = op.request.input.count();
  entry.output = op.request.output.count();
  entry.began = op.started;
  entry.rank = rank;
  entry.peer = op.request.envelope ? op.request.envelope->peer : -1;
  entry.sends = op.request.envelope && op.request.envelope->sends;
  entry.kind = op.request.kind;
  entry.dtype = op.request.dtype;
  entry.has_ended = entry.failed = false;
}

void OpLog::end(const Op& op, TimePoint now, bool failed) noexcept {
  if (op.record == 0) return;
  Entry& entry = entries_[op.record % kKept];
  if (entry.record != op.record) return;
  entry.ended = now;
  entry.has_ended = true;
  entry.failed = failed;
}

std::string OpLog::json() const {
  const Duration since_1970 =
      std::chrono::duration_cast<Duration>(std::chrono::system_clock::now().time_since_epoch()) -
      Clock::now().time_since_epoch();
  std::vector<std::string> out;
  for (size_t i = 1; i <= entries_.size(); ++i)
    if (const Entry& entry = entries_[(last_ + i) % kKept]; entry.record != 0)
      out.push_back(json(entry, since_1970));
  return json_array(out);
}

std::string OpLog::json(const Entry& entry, Duration since_1970) const {
  const auto time = [&](TimePoint when) {
    const auto whole = when.time_since_epoch() + since_1970;
    return std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(whole).count());
  };
  const std::string_view name = entry.kind != Collective::kPointToPoint
                                    ? collective_name(entry.kind)
                                : entry.sends ? "send"
                                              : "recv";
  return json_array(std::vector<std::string>{
      std::to_string(entry.record), json_string(format_id(entry.nonce)), std::to_string(entry.rank),
      std::to_string(entry.number), json_string(name), json_string(dtype_name(entry.dtype)),
      std::to_string(entry.input), std::to_string(entry.output), std::to_string(entry.peer),
      time(entry.began), entry.has_ended ? time(entry.ended) : "0",
      entry.failed ? "true" : "false"});
}

}  // namespace ringdist
