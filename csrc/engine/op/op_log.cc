#include "engine/op/op_log.h"

#include <chrono>

#include "base/describe.h"
#include "base/dtype.h"
#include "base/json.h"
#include "plan/op_spec.h"

namespace ringdist {

void OpLog::begin(Op& op, uint64_t nonce, int rank) {
  if (rows_.empty()) rows_.resize(kKept);
  op.record = ++last_;
  OpRecord& row = rows_[last_ % kKept];
  row.record = last_;
  row.nonce = nonce;
  row.number = op.number;
  row.input = op.request.input.count();
  row.output = op.request.output.count();
  row.began = op.started;
  row.rank = rank;
  row.peer = op.request.envelope ? op.request.envelope->peer : -1;
  row.sends = op.request.envelope && op.request.envelope->sends;
  row.kind = op.request.kind;
  row.dtype = op.request.dtype;
  row.has_ended = row.failed = false;
}

void OpLog::end(const Op& op, TimePoint now, bool failed) noexcept {
  if (op.record == 0) return;
  OpRecord& row = rows_[op.record % kKept];
  if (row.record != op.record) return;
  row.ended = now;
  row.has_ended = true;
  row.failed = failed;
}

std::string OpLog::json() const {
  const Duration since_1970 =
      std::chrono::duration_cast<Duration>(std::chrono::system_clock::now().time_since_epoch()) -
      Clock::now().time_since_epoch();
  std::vector<std::string> out;
  for (size_t i = 1; i <= rows_.size(); ++i)
    if (const OpRecord& row = rows_[(last_ + i) % kKept]; row.record != 0)
      out.push_back(json(row, since_1970));
  return json_array(out);
}

std::string OpLog::json(const OpRecord& row, Duration since_1970) const {
  const auto time = [&](TimePoint when) {
    const auto whole = when.time_since_epoch() + since_1970;
    return std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(whole).count());
  };
  const std::string_view name = row.kind != Collective::kPointToPoint ? collective_name(row.kind)
                                : row.sends                           ? "send"
                                                                      : "recv";
  return json_array(std::vector<std::string>{
      std::to_string(row.record), json_string(format_id(row.nonce)), std::to_string(row.rank),
      std::to_string(row.number), json_string(name), json_string(dtype_name(row.dtype)),
      std::to_string(row.input), std::to_string(row.output), std::to_string(row.peer),
      time(row.began), row.has_ended ? time(row.ended) : "0", row.failed ? "true" : "false"});
}

}  // namespace ringdist
