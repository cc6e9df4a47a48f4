#include "negotiation/timeline/timeline.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace ringdist {
namespace {

constexpr int kRoot = 0;

int64_t nanoseconds(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

}  // namespace

Timeline::Timeline(TimelineHost& host, Topology topology, int rank, std::string who)
    : host_(host), topology_(std::move(topology)), rank_(rank), who_(std::move(who)) {}

Timeline::~Timeline() = default;

Error Timeline::start(const std::string& path, bool marks_cycles, TimePoint now) {
  if (is_on())
    return {ErrorKind::kInvalidArgument,
            "ringdist: timeline: it is written to " + path_ + " already; stop that one first"};
  for (int rank = 0; rank < size(); ++rank) (void)std::remove(part_of(path, rank).c_str());
  if (Error error = open(part_of(path, rank_))) return error;
  TimelineLetter letter;
  letter.kind = TimelineLetter::Kind::kStart;
  letter.path = path;
  letter.marks_cycles = marks_cycles;
  if (!begin(letter, now))
    return {ErrorKind::kInvalidArgument,
            "ringdist: timeline: this process is recorded by torch_ringdist.trace() already"};
  send_all(letter);
  return {};
}

Error Timeline::open(const std::string& path) {
  auto file = TraceFile::create(path, rank_, who_);
  if (!file.ok()) return file.error();
  file_ = std::move(file.value());
  own_ = path;
  return {};
}

bool Timeline::begin(const TimelineLetter& start, TimePoint now) {
  path_ = start.path;
  stops_ = false;
  if (!host_.record(file_)) {
    file_.reset();
    (void)std::remove(own_.c_str());
    return false;
  }
  marks_cycles_ = start.marks_cycles;
  compared_ = TimePoint::min();
  compare_clocks(now);
  return true;
}

void Timeline::send(int rank, const TimelineLetter& letter) {
  host_.send_timeline(rank, letter.encode());
}

void Timeline::send_all(const TimelineLetter& letter) {
  for (int rank = 1; rank < size(); ++rank) send(rank, letter);
}

Error Timeline::receive(int rank, ConstBytes bytes, TimePoint now) {
  auto letter = TimelineLetter::decode(bytes);
  if (!letter.ok()) return letter.error();
  using Kind = TimelineLetter::Kind;
  const Kind kind = letter.value().kind;
  const bool goes_up = kind == Kind::kPing || kind == Kind::kStopped || kind == Kind::kPart;
  if (goes_up != is_root() || (!goes_up && rank != kRoot))
    return {ErrorKind::kProtocol,
            "ringdist: timeline: rank " + std::to_string(rank) + " says what is not its part"};
  obey(rank, letter.value(), now);
  return {};
}

void Timeline::obey(int rank, const TimelineLetter& letter, TimePoint now) {
  switch (letter.kind) {
    case TimelineLetter::Kind::kStart: {
      if (is_on()) return;
      const std::string temporary = std::filesystem::temp_directory_path().string() + "/ringdist-" +
                                    std::to_string(getpid()) + "-timeline";
      // Another host may have no such folder. A rank that cannot write has no part in it.
      if (open(part_of(letter.path, rank_)) && open(part_of(temporary, rank_))) return;
      (void)begin(letter, now);
      return;
    }
    case TimelineLetter::Kind::kPing: {
      TimelineLetter pong = letter;
      pong.kind = TimelineLetter::Kind::kPong;
      pong.root_time = nanoseconds(now);
      return send(rank, pong);
    }
    case TimelineLetter::Kind::kPong:
      return on_pong(letter, now);
    case TimelineLetter::Kind::kStop:
      stops_ = true;
      compared_ = TimePoint::min();
      compare_clocks(now);
      if (exchanges_left_ == 0) finish();
      return;
    case TimelineLetter::Kind::kStopped:
      return on_stopped(rank, letter);
    case TimelineLetter::Kind::kRead:
      return send_part(letter.offset);
    case TimelineLetter::Kind::kPart:
      return on_part(rank, letter);
    case TimelineLetter::Kind::kDone:
      if (is_awaited_ && own_ != part_of(path_, rank_)) (void)std::remove(own_.c_str());
      is_awaited_ = false;
      return;
  }
}

void Timeline::compare_clocks(TimePoint now) {
  const bool is_recent = compared_ != TimePoint::min() && now - compared_ < kCompareTime;
  if (!is_on() || !is_far(rank_) || is_recent) return;
  compared_ = now;
  exchanges_left_ = kExchanges;
  shortest_ = Duration::max();
  ping(now);
}

void Timeline::ping(TimePoint now) {
  TimelineLetter letter;
  letter.kind = TimelineLetter::Kind::kPing;
  letter.time = nanoseconds(now);
  send(kRoot, letter);
}

void Timeline::on_pong(const TimelineLetter& pong, TimePoint now) {
  if (exchanges_left_ == 0) return;
  const Duration took = std::chrono::nanoseconds(nanoseconds(now) - pong.time);
  if (took < shortest_) {
    shortest_ = took;
    ahead_ = std::chrono::nanoseconds(pong.root_time - pong.time) - took / 2;
  }
  if (--exchanges_left_ > 0) return ping(now);
  if (file_) file_->set_clock(now, ahead_);
  if (stops_) finish();
}

// Rank 0 hears of it, also of a rank that has recorded nothing.
void Timeline::finish() {
  stops_ = false;
  TimelineLetter letter;
  letter.kind = TimelineLetter::Kind::kStopped;
  letter.path = is_on() ? own_ : "";
  const bool awaited = is_on() && !is_root();
  end();
  is_awaited_ = awaited;
  if (!is_root()) send(kRoot, letter);
}

void Timeline::end() {
  is_awaited_ = false;
  if (!is_on()) return;
  (void)host_.record(nullptr);
  file_->flush();
  file_.reset();
  marks_cycles_ = false;
}

void Timeline::stop() {
  finish();
  awaited_.clear();
  for (int rank = 1; rank < size(); ++rank) awaited_.emplace(rank, File(nullptr, std::fclose));
  TimelineLetter letter;
  letter.kind = TimelineLetter::Kind::kStop;
  send_all(letter);
  if (awaited_.empty()) host_.gathered();
}

void Timeline::on_stopped(int rank, const TimelineLetter& letter) {
  const auto found = awaited_.find(rank);
  if (found == awaited_.end()) return;
  if (letter.path.empty()) return has_come(rank);
  // Where it is there already it is the rank's own, on this host or a disk that hosts share.
  found->second = File(std::fopen(part_of(path_, rank).c_str(), "wx"), std::fclose);
  if (!found->second) return has_come(rank);
  TimelineLetter read;
  read.kind = TimelineLetter::Kind::kRead;
  send(rank, read);
}

void Timeline::send_part(int64_t offset) {
  TimelineLetter part;
  part.kind = TimelineLetter::Kind::kPart;
  part.offset = offset;
  if (const File file(std::fopen(own_.c_str(), "r"), std::fclose);
      file && std::fseek(file.get(), offset, SEEK_SET) == 0) {
    part.bytes.resize(kPartBytes);
    part.bytes.resize(std::fread(part.bytes.data(), 1, kPartBytes, file.get()));
  }
  send(kRoot, part);
}

void Timeline::on_part(int rank, const TimelineLetter& part) {
  const auto found = awaited_.find(rank);
  if (found == awaited_.end() || !found->second) return;
  if (part.bytes.empty()) return has_come(rank);
  const size_t written = std::fwrite(part.bytes.data(), 1, part.bytes.size(), found->second.get());
  if (written < part.bytes.size()) return has_come(rank);  // there is no room
  TimelineLetter read;
  read.kind = TimelineLetter::Kind::kRead;
  read.offset = part.offset + static_cast<int64_t>(written);
  send(rank, read);
}

void Timeline::has_come(int rank) {
  awaited_.erase(rank);
  TimelineLetter done;
  done.kind = TimelineLetter::Kind::kDone;
  send(rank, done);
  if (awaited_.empty()) host_.gathered();
}

}  // namespace ringdist
