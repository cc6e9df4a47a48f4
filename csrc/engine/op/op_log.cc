#include "engine/op/op_log.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "base/describe.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/json.h"
#include "plan/op_spec.h"

namespace ringdist {
namespace {

constexpr uint64_t kMostBefore = 100;  // ops that are looked at before a call

// Numbers are chosen by a hash, since each second op may be the same one of a training step. The
// low bits of the hash depend on those of the number alone.
uint64_t hash_of(uint64_t number) { return Hash().add(number).value() >> 40; }

}  // namespace

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
  row.usage = op.usage;
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

const OpLog::OpRecord* OpLog::before(uint64_t record, uint64_t back) const {
  if (back >= record || back >= rows_.size()) return nullptr;
  const OpRecord& row = rows_[(record - back) % kKept];
  return row.record == record - back ? &row : nullptr;
}

std::map<OpLog::Member, std::vector<SampledCall>> OpLog::calls(TimePoint since) const {
  std::map<Member, std::vector<const OpRecord*>> found;  // newest first
  for (uint64_t back = 0; const OpRecord* row = before(last_, back); ++back) {
    if (row->began < since) break;
    if (row->number != 0) found[{row->nonce, row->rank}].push_back(row);
  }
  std::map<Member, std::vector<SampledCall>> out;
  for (const auto& [member, rows] : found) {
    uint64_t stride = 1;
    while (rows.size() / stride > CallSample::kMostCalls) stride *= 2;
    std::vector<SampledCall>& calls = out[member];
    for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
      if (hash_of((*row)->number) % stride != 0 || calls.size() == CallSample::kMostCalls) continue;
      calls.push_back({(*row)->number, (*row)->began, (*row)->usage});
      find_elsewhere(calls.back(), member.first, (*row)->record);
    }
  }
  return out;
}

// Ops of another group overlap each other rarely, so their times are added up.
void OpLog::find_elsewhere(SampledCall& call, uint64_t nonce, uint64_t record) const {
  if (call.usage.elapsed == 0) return;
  const TimePoint from = call.began - std::chrono::microseconds(call.usage.elapsed);
  std::map<uint64_t, Duration> in_group;
  for (uint64_t back = 1; back <= kMostBefore; ++back) {
    const OpRecord* const row = before(record, back);
    if (row == nullptr) break;
    if (row->nonce == nonce || (row->has_ended && row->ended <= from)) continue;
    const TimePoint until = row->has_ended ? std::min(row->ended, call.began) : call.began;
    in_group[row->nonce] += until - std::max(row->began, from);
  }
  Duration most{};
  for (const auto& [group, time] : in_group) {
    const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
    call.elsewhere =
        static_cast<uint32_t>(std::min<int64_t>(call.elsewhere + whole, call.usage.elapsed));
    if (time > most) {
      most = time;
      call.other_group = group;
    }
  }
}

std::string OpLog::json(const OpRecord& row, Duration since_1970) const {
  const auto time = [&](TimePoint when) {
    const auto whole = when.time_since_epoch() + since_1970;
    return std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(whole).count());
  };
  return json_array(std::vector<std::string>{
      std::to_string(row.record), json_string(format_id(row.nonce)), std::to_string(row.rank),
      std::to_string(row.number), json_string(op_name(row.kind, row.sends)),
      json_string(dtype_name(row.dtype)), std::to_string(row.input), std::to_string(row.output),
      std::to_string(row.peer), time(row.began), row.has_ended ? time(row.ended) : "0",
      row.failed ? "true" : "false"});
}

}  // namespace ringdist
