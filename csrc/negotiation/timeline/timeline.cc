#include "negotiation/timeline/timeline.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/serialize.h"

namespace ringdist {

std::vector<std::byte> TimelineMessage::encode() const {
  Writer out;
  out.put(kind).put_string(path).put(static_cast<uint8_t>(marks_cycles));
  out.put(static_cast<uint8_t>(is_copied));
  out.put(time).put(root_time).put(offset).put_bytes(bytes);
  return out.take();
}

Result<TimelineMessage> TimelineMessage::decode(ConstBytes in_bytes) {
  Reader in(in_bytes);
  TimelineMessage out;
  out.kind = in.get<Kind>();
  out.path = in.get_string();
  out.marks_cycles = in.get<uint8_t>() != 0;
  out.is_copied = in.get<uint8_t>() != 0;
  out.time = in.get<int64_t>();
  out.root_time = in.get<int64_t>();
  out.offset = in.get<int64_t>();
  out.bytes = in.get_bytes();
  // Receivers add a suffix to the path, which a zero byte would cut off.
  const bool good = out.path.find('\0') == std::string::npos &&
                    ("/" + out.path + "/").find("/../") == std::string::npos;
  // Sums and differences of such numbers do not overflow.
  const auto is_small = [](int64_t number) {
    constexpr int64_t kMost = int64_t{1} << 60;
    return number >= -kMost && number <= kMost;
  };
  const bool fits = is_small(out.time) && is_small(out.root_time) && is_small(out.offset);
  if (!in.ended() || out.kind > Kind::kDone || !good || !fits || out.offset < 0)
    return Error(ErrorKind::kProtocol, "ringdist: timeline: a message that cannot be read");
  return out;
}

namespace {

constexpr int kTimelineRoot = 0;

int64_t nanoseconds(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

std::string temporary_path() {
  std::error_code none;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(none);
  return folder.string() + "/ringdist-" + std::to_string(getpid()) + "-timeline";
}

}  // namespace

Timeline::Timeline(TimelineDelegate& delegate, Topology topology, int rank, std::string who)
    : delegate_(delegate), topology_(std::move(topology)), rank_(rank), who_(std::move(who)) {}

Timeline::~Timeline() = default;

Error Timeline::start(const std::string& path, bool marks_cycles, TimePoint now) {
  if (is_on())
    return {ErrorKind::kInvalidArgument,
            "ringdist: timeline: it is written to " + path_ + " already; stop that one first"};
  if (Error error = open(part_of(path, rank_))) return error;
  TimelineMessage message;
  message.kind = TimelineMessage::Kind::kStart;
  message.path = path;
  message.marks_cycles = marks_cycles;
  if (!begin(message, now))
    return {ErrorKind::kInvalidArgument,
            "ringdist: timeline: this process is recorded by torch_ringdist.trace() already"};
  send_all(message);
  return {};
}

Error Timeline::open(const std::string& path) {
  auto file = TraceFile::create(path, rank_, who_);
  if (!file.ok()) return file.error();
  file_ = std::move(file.value());
  own_ = path;
  return {};
}

bool Timeline::begin(const TimelineMessage& start, TimePoint now) {
  path_ = start.path;
  stops_ = false;
  if (!delegate_.record(file_)) {
    file_.reset();
    (void)std::remove(own_.c_str());
    return false;
  }
  marks_cycles_ = start.marks_cycles;
  compared_ = TimePoint::min();
  compare_clocks(now);
  return true;
}

void Timeline::send(int rank, const TimelineMessage& message) {
  delegate_.send_timeline(rank, message.encode());
}

void Timeline::send_all(const TimelineMessage& message) {
  for (int rank = 1; rank < size(); ++rank) send(rank, message);
}

Error Timeline::receive(int rank, ConstBytes bytes, TimePoint now) {
  auto message = TimelineMessage::decode(bytes);
  if (!message.ok()) return message.error();
  using Kind = TimelineMessage::Kind;
  const Kind kind = message.value().kind;
  const bool goes_up = kind == Kind::kPing || kind == Kind::kStopped || kind == Kind::kPart;
  if (goes_up != is_root() || (!goes_up && rank != kTimelineRoot))
    return {ErrorKind::kProtocol,
            "ringdist: timeline: rank " + std::to_string(rank) + " says what is not its part"};
  obey(rank, message.value(), now);
  return {};
}

void Timeline::obey(int rank, const TimelineMessage& message, TimePoint now) {
  switch (message.kind) {
    case TimelineMessage::Kind::kStart: {
      if (is_on()) return;
      // The host may lack the folder, so a temporary folder comes next. A rank that cannot write
      // there either does not record.
      if (open(part_of(message.path, rank_)) && open(part_of(temporary_path(), rank_))) return;
      (void)begin(message, now);
      return;
    }
    case TimelineMessage::Kind::kPing: {
      TimelineMessage pong = message;
      pong.kind = TimelineMessage::Kind::kPong;
      pong.root_time = nanoseconds(now);
      return send(rank, pong);
    }
    case TimelineMessage::Kind::kPong:
      return on_pong(message, now);
    case TimelineMessage::Kind::kStop:
      stops_ = true;
      compared_ = TimePoint::min();
      compare_clocks(now);
      if (exchanges_left_ == 0) finish();
      return;
    case TimelineMessage::Kind::kStopped:
      return on_stopped(rank, message);
    case TimelineMessage::Kind::kRead:
      return send_part(message.offset);
    case TimelineMessage::Kind::kPart:
      return on_part(rank, message);
    case TimelineMessage::Kind::kDone:
      if (is_awaited_ && message.is_copied) (void)std::remove(own_.c_str());
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
  TimelineMessage message;
  message.kind = TimelineMessage::Kind::kPing;
  message.time = nanoseconds(now);
  send(kTimelineRoot, message);
}

void Timeline::on_pong(const TimelineMessage& pong, TimePoint now) {
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

// Sends kStopped even if this rank has recorded nothing.
void Timeline::finish() {
  stops_ = false;
  TimelineMessage message;
  message.kind = TimelineMessage::Kind::kStopped;
  message.path = is_on() ? own_ : "";
  const bool awaited = is_on() && !is_root();
  if (is_on()) file_->flush();
  end();
  is_awaited_ = awaited;
  if (!is_root()) send(kTimelineRoot, message);
}

void Timeline::end() {
  is_awaited_ = false;
  if (!is_on()) return;
  (void)delegate_.record(nullptr);
  delegate_.discard(std::move(file_));
  marks_cycles_ = false;
}

void Timeline::stop() {
  finish();
  problem_ = {};
  to_read_.clear();
  part_.reset();
  for (int rank = 1; rank < size(); ++rank) awaited_.insert(rank);
  TimelineMessage message;
  message.kind = TimelineMessage::Kind::kStop;
  send_all(message);
  if (awaited_.empty()) delegate_.gathered({});
}

void Timeline::on_stopped(int rank, const TimelineMessage& message) {
  if (!awaited_.contains(rank)) return;
  const bool is_here = !is_far(rank) && message.path == part_of(path_, rank);
  if (message.path.empty() || is_here) return has_come(rank, /*is_copied=*/false);
  to_read_.push_back(rank);
  if (to_read_.size() == 1) read_next();
}

void Timeline::read_next() {
  if (to_read_.empty()) return;
  const int rank = to_read_.front();
  // If the file exists already, the rank has written it itself, on a disk that the hosts share.
  part_ = File(std::fopen(part_of(path_, rank).c_str(), "wxe"), std::fclose);
  if (!part_ && errno == EEXIST) return has_come(rank, /*is_copied=*/false);
  if (!part_) return fail_part(rank);
  TimelineMessage read;
  read.kind = TimelineMessage::Kind::kRead;
  send(rank, read);
}

void Timeline::send_part(int64_t offset) {
  TimelineMessage part;
  part.kind = TimelineMessage::Kind::kPart;
  part.offset = offset;
  if (const File file(std::fopen(own_.c_str(), "r"), std::fclose);
      file && std::fseek(file.get(), offset, SEEK_SET) == 0) {
    part.bytes.resize(kPartBytes);
    part.bytes.resize(std::fread(part.bytes.data(), 1, kPartBytes, file.get()));
  }
  send(kTimelineRoot, part);
}

void Timeline::on_part(int rank, const TimelineMessage& part) {
  if (to_read_.empty() || to_read_.front() != rank || !part_) return;
  if (part.bytes.empty())
    return std::fflush(part_.get()) == 0 ? has_come(rank, /*is_copied=*/true) : fail_part(rank);
  if (std::fwrite(part.bytes.data(), 1, part.bytes.size(), part_.get()) < part.bytes.size())
    return fail_part(rank);
  TimelineMessage read;
  read.kind = TimelineMessage::Kind::kRead;
  read.offset = part.offset + static_cast<int64_t>(part.bytes.size());
  send(rank, read);
}

// The rank keeps its file, because rank 0 could not copy it.
void Timeline::fail_part(int rank) {
  if (!problem_)
    problem_ = Error(ErrorKind::kSystem,
                     "ringdist: timeline: " + part_of(path_, rank) + ": " + std::strerror(errno));
  has_come(rank, /*is_copied=*/false);
}

void Timeline::has_come(int rank, bool is_copied) {
  awaited_.erase(rank);
  TimelineMessage done;
  done.kind = TimelineMessage::Kind::kDone;
  done.is_copied = is_copied;
  send(rank, done);
  if (!to_read_.empty() && to_read_.front() == rank) {
    part_.reset();
    to_read_.pop_front();
    read_next();
  }
  if (awaited_.empty()) delegate_.gathered(std::exchange(problem_, {}));
}

}  // namespace ringdist
