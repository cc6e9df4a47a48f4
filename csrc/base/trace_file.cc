#include "base/trace_file.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

namespace ringdist {
namespace {

// Time from the first event that is added to the write. A process that is killed loses at most the
// events of this time.
constexpr auto kWriteTime = std::chrono::milliseconds(50);
constexpr size_t kMostWaiting =
    size_t{64} << 20;  // bytes; if the disk is slower than that, events are dropped

// Returns the text as a JSON string.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> code{};
      std::snprintf(code.data(), code.size(), "\\u%04x", c);
      out += code.data();
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Formats a time in microseconds with three decimals.
std::string micros(Duration time) {
  std::array<char, 32> text{};
  const auto count = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  // Integer arithmetic, because printf of a double uses a decimal comma in many locales.
  const long long whole = std::abs(count);
  std::snprintf(text.data(), text.size(), "%s%lld.%03lld", count < 0 ? "-" : "", whole / 1000,
                whole % 1000);
  return text.data();
}

// Returns a metadata event; `rest` is appended to its fields.
std::string metadata(const std::string& rank, const std::string& name, const std::string& rest) {
  return R"({"ph":"M","pid":)" + rank + R"(,"name":)" + quoted(name) + rest + "},\n";
}

}  // namespace

Result<std::shared_ptr<TraceFile>> TraceFile::create(const std::string& path, int rank,
                                                     const std::string& name) {
  // With "x", fopen() fails if the path exists, so it never writes through a link.
  (void)std::remove(path.c_str());
  File file(std::fopen(path.c_str(), "wxe"), std::fclose);
  if (!file) return Error(ErrorKind::kSystem, "ringdist: " + path + ": " + std::strerror(errno));
  std::shared_ptr<TraceFile> out;
  try {
    out.reset(new TraceFile(std::move(file), rank));
  } catch (const std::system_error& error) {
    return Error(ErrorKind::kSystem,
                 std::string("ringdist: a thread that writes: ") + error.what());
  }
  const auto epoch = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  out->put("[\n" +
           metadata(out->rank_, "process_name", R"(,"args":{"name":)" + quoted(name) + "}"));
  out->put(metadata(out->rank_, "start",
                    ",\"ts\":" + micros(Clock::now().time_since_epoch()) +
                        R"(,"args":{"start_time_since_epoch_in_micros":)" +
                        std::to_string(epoch.count()) + "}"));
  out->flush();
  return out;
}

TraceFile::TraceFile(File file, int rank)
    : rank_(std::to_string(rank)), pid_(getpid()), file_(std::move(file)) {
  thread_ = std::thread([this] { run(); });
}

TraceFile::~TraceFile() {
  if (forked()) {  // the child has no writer thread, and the lock may be held
    thread_.detach();
    (void)file_.release();  // NOLINT(bugprone-unused-return-value): fclose() would write
    return;
  }
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
  flush();
}

void TraceFile::add(const TraceSpan& span) noexcept {
  if (forked()) return;
  try {
    std::string event;
    std::lock_guard lock(mutex_);
    if (waiting_.size() > kMostWaiting) return;
    // The writer waits for the condition only while nothing is queued, so later events need not
    // wake it.
    const bool wakes = waiting_.empty();
    const std::string row = std::to_string(track(span.track));
    const bool is_moment = span.begin == span.end;
    event = R"({"ph":")" + std::string(is_moment ? "i" : "X") + R"(","pid":)" + rank_ +
            ",\"tid\":" + row + ",\"ts\":" + micros(span.begin.time_since_epoch()) +
            (is_moment ? R"(,"s":"p")" : ",\"dur\":" + micros(span.end - span.begin)) +
            ",\"name\":" + quoted(span.what) +
            (span.detail.empty() ? "" : R"(,"args":{"detail":)" + quoted(span.detail) + "}") +
            "},\n";
    waiting_ += event;
    if (wakes) changed_.notify_one();
  } catch (...) {  // no memory: the event is dropped
  }
}

void TraceFile::set_clock(TimePoint at, Duration ahead) {
  put(metadata(rank_, "clock",
               ",\"ts\":" + micros(at.time_since_epoch()) + R"(,"args":{"offset_us":)" +
                   micros(ahead) + "}"));
}

// Requires mutex_: the event with a new track's name must precede the events of the track.
int TraceFile::track(const std::string& name) {
  const auto [at, is_new] = tracks_.try_emplace(name, static_cast<int>(tracks_.size()) + 1);
  if (is_new)
    waiting_ += metadata(
        rank_, "thread_name",
        ",\"tid\":" + std::to_string(at->second) + R"(,"args":{"name":)" + quoted(name) + "}");
  return at->second;
}

void TraceFile::put(const std::string& event) {
  std::lock_guard lock(mutex_);
  waiting_ += event;
  changed_.notify_one();
}

bool TraceFile::forked() const { return getpid() != pid_; }

// The file's lock is held while the events are moved and written. Otherwise two calls could write
// their events in the wrong order.
void TraceFile::flush() {
  std::lock_guard one_at_a_time(writing_);
  std::string now;
  {
    std::lock_guard lock(mutex_);
    now.swap(waiting_);
  }
  (void)std::fwrite(now.data(), 1, now.size(), file_.get());
  (void)std::fflush(file_.get());
}

void TraceFile::run() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    changed_.wait(lock, [this]() RINGDIST_REQUIRES(mutex_) { return ends_ || !waiting_.empty(); });
    // Events that are added during this time are written together.
    changed_.wait_for(lock, kWriteTime, [this]() RINGDIST_REQUIRES(mutex_) { return ends_; });
    lock.unlock();
    flush();
    lock.lock();
  }
}

}  // namespace ringdist
