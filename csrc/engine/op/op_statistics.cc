#include "engine/op/op_statistics.h"

#include <algorithm>
#include <bit>

#include "base/describe.h"
#include "base/json.h"
#include "codec/codec.h"

namespace ringdist {
namespace {

// Fields of a key, from the lowest bit: the size, the codec, the direction and the kind.
constexpr int kCodecShift = 8;
constexpr int kSendsShift = 16;
constexpr int kKindShift = 17;

constexpr int kFirstEnd = 10;  // the exponent of the first bucket's end in nanoseconds

// Returns n so that `value` is at most 2^n, but 0 for values below 1.
int exponent_of(int64_t value) {
  return value <= 1 ? 0 : std::bit_width(static_cast<uint64_t>(value - 1));
}

int64_t bytes_of(const Buffer& buffer) {
  return buffer.count() * static_cast<int64_t>(buffer.element_size());
}

// The size is 0 for no bytes, and else 1 more than the exponent.
uint32_t key_of(const OpRequest& request, int64_t bytes) {
  const uint32_t size = bytes == 0 ? 0 : 1 + static_cast<uint32_t>(exponent_of(bytes));
  const uint32_t codec = request.codec_map ? request.codec_map->codec_id() : 0;
  const uint32_t sends = request.envelope && request.envelope->sends ? 1 : 0;
  return size | codec << kCodecShift | sends << kSendsShift |
         static_cast<uint32_t>(request.kind) << kKindShift;
}

}  // namespace

void DurationHistogram::add(Duration duration) noexcept {
  const int bucket = std::max(exponent_of(duration.count()), kFirstEnd) - kFirstEnd;
  ++counts_[static_cast<size_t>(std::min(bucket, kBuckets - 1))];
  sum_ += duration;
}

void DurationHistogram::merge(const DurationHistogram& other) {
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  sum_ += other.sum_;
}

std::string DurationHistogram::json() const {
  std::vector<uint64_t> counts(counts_.begin(), counts_.end());
  while (!counts.empty() && counts.back() == 0) counts.pop_back();
  return JsonObject().add("sum", seconds(sum_)).add_json("counts", json_array(counts)).text();
}

// The ops of a training step come in the same order each time, so the row after the last one is
// likely.
OpStatistics::Row& OpStatistics::row(uint32_t key) {
  for (size_t tried = 0; tried < rows_.size(); ++tried) {
    if (rows_[last_].key == key) return rows_[last_];
    if (++last_ == rows_.size()) last_ = 0;
  }
  rows_.emplace_back().key = key;
  last_ = rows_.size() - 1;
  return rows_.back();
}

void OpStatistics::add(const Op& op, TimePoint now, bool failed) noexcept {
  try {
    const int64_t bytes = std::max(bytes_of(op.request.input), bytes_of(op.request.output));
    Row& ours = row(key_of(op.request, bytes));
    ++ours.count;
    if (failed) {
      ++ours.failed;
      return;
    }
    ours.bytes += static_cast<uint64_t>(bytes);
    ours.duration.add(now - op.started);
    ours.wait.add(op.longest_wait);
  } catch (...) {  // no memory
  }
}

void OpStatistics::merge(const OpStatistics& other) noexcept {
  try {
    for (const Row& theirs : other.rows_) {
      Row& ours = row(theirs.key);
      ours.count += theirs.count;
      ours.failed += theirs.failed;
      ours.bytes += theirs.bytes;
      ours.duration.merge(theirs.duration);
      ours.wait.merge(theirs.wait);
    }
  } catch (...) {  // no memory
  }
}

uint64_t OpStatistics::count() const {
  uint64_t out = 0;
  for (const Row& row : rows_) out += row.count;
  return out;
}

std::string OpStatistics::json() const {
  std::vector<Row> sorted = rows_;
  std::ranges::sort(sorted, {}, &Row::key);
  std::vector<std::string> out;
  for (const Row& row : sorted) {
    const auto kind = static_cast<Collective>(row.key >> kKindShift);
    const bool sends = (row.key >> kSendsShift & 1) != 0;
    const auto codec = static_cast<uint8_t>(row.key >> kCodecShift);
    const uint32_t size = row.key & 0xff;
    out.push_back(JsonObject()
                      .add("operation", op_name(kind, sends))
                      .add("codec", codec == 0 ? std::string_view() : codec_name(codec))
                      .add("size", size == 0 ? uint64_t{0} : uint64_t{1} << (size - 1))
                      .add("count", row.count)
                      .add("failed", row.failed)
                      .add("bytes", row.bytes)
                      .add_json("duration", row.duration.json())
                      .add_json("wait", row.wait.json())
                      .text());
  }
  return json_array(out);
}

void PeerTraffic::merge(const PeerTraffic& other) {
  bytes_sent += other.bytes_sent;
  bytes_received += other.bytes_received;
  messages_sent += other.messages_sent;
  messages_received += other.messages_received;
  sending += other.sending;
}

std::shared_ptr<PeerTraffic> PeerTrafficTable::row(uint64_t context_id, std::string_view transport,
                                                   const std::string& where, bool on_other_host) {
  const Key key{context_id, transport};
  if (const auto found = rows_.find(key); found != rows_.end()) return found->second;
  if (rows_.size() >= kMost) {
    if (!others_) others_ = std::make_shared<PeerTraffic>("others", true);
    std::erase_if(rows_, [this](const auto& entry) {
      const auto& traffic = entry.second;
      const bool unused = traffic.use_count() == 1 && traffic->sends_in_flight == 0;
      if (unused) others_->merge(*traffic);
      return unused;
    });
  }
  if (rows_.size() >= kMost) return others_;
  return rows_[key] = std::make_shared<PeerTraffic>(where, on_other_host);
}

std::string PeerTrafficTable::json(TimePoint now) const {
  std::vector<std::string> out;
  const auto add = [&](uint64_t context_id, std::string_view transport, const PeerTraffic& row) {
    const Duration present = row.sends_in_flight > 0 ? now - row.sending_since : Duration(0);
    out.push_back(JsonObject()
                      .add("context", context_id == 0 ? "" : format_id(context_id))
                      .add("transport", transport)
                      .add("where", row.where)
                      .add("bytes_sent", row.bytes_sent)
                      .add("bytes_received", row.bytes_received)
                      .add("messages_sent", row.messages_sent)
                      .add("messages_received", row.messages_received)
                      .add("sending", seconds(row.sending + present))
                      .text());
  };
  for (const auto& [key, row] : rows_) add(key.first, key.second, *row);
  if (others_) add(0, "", *others_);
  return json_array(out);
}

}  // namespace ringdist
