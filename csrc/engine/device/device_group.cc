#include "engine/device/device_group.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "os/cpu_set.h"
#include "os/host.h"
#include "os/random.h"

namespace ringdist {
namespace {

using Memory = std::shared_ptr<std::vector<std::byte>>;

// Memory that an op keeps alive.
Memory memory_of(size_t bytes) { return std::make_shared<std::vector<std::byte>>(bytes); }

// Request for a collective or message of bytes. The caller adds the buffers.
OpRequest bytes_request(Collective kind, size_t count, const Memory& memory, TimePoint deadline) {
  OpRequest out;
  out.kind = kind;
  out.dtype = DType::kBytes;
  out.count = static_cast<int64_t>(count);
  out.keep_alive = memory;
  out.timeout = milliseconds_until(deadline);
  return out;
}

Buffer buffer_of(std::byte* at, size_t bytes) {
  Buffer out(1);
  out.append(at, static_cast<int64_t>(bytes));
  return out;
}

// Request for a message of the runner. Its tag space keeps it apart from messages of callers.
OpRequest message(int peer, bool sends, const Memory& memory, TimePoint deadline) {
  OpRequest out = bytes_request(Collective::kPointToPoint, memory->size(), memory, deadline);
  out.envelope = Envelope{peer, 0, sends, Envelope::TagSpace::kRunner};
  (sends ? out.input : out.output) = buffer_of(memory->data(), memory->size());
  return out;
}

constexpr size_t kPage = 4096;  // the first page holds the file's number

// Location of a rank's file. All zeros mean that it has none.
struct Place {
  uint64_t host = 0;
  uint64_t number = 0;
  int32_t process = 0;
  int32_t descriptor = -1;
};

// The file of this rank, and its mapping.
struct Own {
  Fd file;
  Mapping mapping;
  Place place;
};

// Creates the file of this rank. Its number is random.
Result<Own> create(size_t bytes) {
  const auto host = host_key();
  if (!host.ok()) return host.error();
  auto file = create_memory("ringdist-common", bytes);
  if (!file.ok()) return file.error();
  if (Error error = allocate(file.value(), 0, bytes)) return error;
  auto mapping = map_memory(file.value(), bytes, /*writable=*/true);
  if (!mapping.ok()) return mapping.error();
  const Place place{Hash().add(host.value()).value(), random_id(), static_cast<int32_t>(getpid()),
                    file.value().get()};
  std::memcpy(mapping.value().data(), &place.number, sizeof place.number);
  return Own{std::move(file.value()), std::move(mapping.value()), place};
}

// Maps the file of another rank, which has `bytes` bytes. Fails also if the path leads to a
// different file by that time, or to none: another PID namespace has other process numbers.
Result<Mapping> open(const Place& place, size_t bytes, uint64_t host) {
  const auto refuse = [](const std::string& why) {
    return Error(ErrorKind::kSystem, "memory of another rank: " + why);
  };
  if (place.host != host) return refuse("it is on another host");
  const std::string path =
      "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.descriptor);
  const Fd file = Fd::open([&] { return ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK); });
  if (!file) return refuse(path + ": " + std::strerror(errno));
  auto mapping = map_memory(file, bytes, /*writable=*/true);
  if (!mapping.ok()) return mapping;
  if (std::memcmp(mapping.value().data(), &place.number, sizeof place.number) != 0)
    return refuse(path + " is something else");
  return mapping;
}

// Maps the files of all ranks; an Error if one cannot be mapped.
Result<std::vector<Mapping>> map_all(int rank, Own& own, size_t bytes,
                                     const std::vector<std::vector<std::byte>>& places) {
  std::vector<Mapping> out;
  for (size_t other = 0; other < places.size(); ++other) {
    Place place;
    std::memcpy(&place, places[other].data(), sizeof place);
    auto mapping = static_cast<int>(other) == rank ? Result<Mapping>(std::move(own.mapping))
                                                   : open(place, bytes, own.place.host);
    if (!mapping.ok()) return mapping.error();
    out.push_back(std::move(mapping.value()));
  }
  return out;
}

}  // namespace

Result<std::vector<std::vector<std::byte>>> DeviceGroup::exchange(const std::vector<int>& ranks,
                                                                  ConstBytes mine,
                                                                  TimePoint deadline) {
  if (size_ == 1) return Everyones{{mine.begin(), mine.end()}};
  if (static_cast<int>(ranks.size()) == size_) return exchange_all(mine, deadline);
  check(ranks.size() == 2 && std::ranges::count(ranks, rank_) == 1,
        "an exchange of neither all ranks nor two, this one among them");
  const bool first = ranks[0] == rank_;
  auto out = exchange_with(ranks[first ? 1 : 0], mine, deadline);
  if (out.ok() && !first) std::swap(out.value()[0], out.value()[1]);
  return out;
}

Result<std::shared_ptr<GroupSharedMemory>> DeviceGroup::share(size_t bytes, TimePoint deadline) {
  const ScopedAffinity near(near_);
  return MappedMemory::make(rank_, bytes,
                            [&](ConstBytes mine) { return exchange_all(mine, deadline); });
}

Result<HostOps> DeviceGroup::duplicate(const std::string& suffix) {
  std::lock_guard lock(mutex_);
  if (const auto it = duplicates_.find(suffix); it != duplicates_.end()) return it->second;
  auto made = duplicate_(suffix);
  if (made.ok()) duplicates_.emplace(suffix, made.value());
  return made;
}

// Collectives run in a duplicate. Messages run in the group itself, in a tag space that callers
// cannot use.
Error DeviceGroup::run_on_host(HostOp op, std::function<void(Error)> ended) {
  OpRequest request;
  static_cast<OpSpec&>(request) = std::move(op.request);
  request.on_device = false;
  request.input = std::move(op.input);
  request.output = std::move(op.output);
  request.keep_alive = std::move(op.keep_alive);
  check(!request.envelope || request.envelope->origin != Envelope::TagSpace::kCaller,
        "a runner's message that a caller's would meet");
  const auto ops = request.envelope ? Result<HostOps>(group_) : duplicate("/on-host");
  if (!ops.ok()) return ops.error();
  auto started = ops.value().submit(std::move(request));
  if (!started.ok()) return started.error();
  Op& running = *started.value();
  running.when_finished([op = started.value(), ended = std::move(ended)] { ended(op->error()); });
  return {};
}

Result<DeviceGroup::Everyones> DeviceGroup::exchange_all(ConstBytes mine, TimePoint deadline) {
  const auto all = duplicate("/devices");
  if (!all.ok()) return all.error();
  const size_t bytes = mine.size();
  const size_t of_all = bytes * static_cast<size_t>(size_);
  const Memory memory = memory_of(bytes + of_all);
  std::ranges::copy(mine, memory->begin());
  OpRequest request = bytes_request(Collective::kAllgather, bytes, memory, deadline);
  request.input = buffer_of(memory->data(), bytes);
  request.output = buffer_of(memory->data() + bytes, of_all);
  auto op = all.value().submit(std::move(request));
  if (!op.ok()) return op.error();
  all.value().await(*op.value());
  if (Error error = op.value()->error()) return error;
  Everyones out;
  for (const std::byte* at = memory->data() + bytes; static_cast<int>(out.size()) < size_;
       at += bytes)
    out.emplace_back(at, at + bytes);
  return out;
}

// The result has this rank's bytes first.
Result<DeviceGroup::Everyones> DeviceGroup::exchange_with(int peer, ConstBytes mine,
                                                          TimePoint deadline) {
  const Memory sent = memory_of(mine.size());
  const Memory received = memory_of(mine.size());
  std::ranges::copy(mine, sent->begin());
  const auto receive = group_.submit(message(peer, /*sends=*/false, received, deadline));
  if (!receive.ok()) return receive.error();
  const auto send = group_.submit(message(peer, /*sends=*/true, sent, deadline));
  if (!send.ok()) return send.error();
  for (const auto& op : {send.value(), receive.value()}) {
    group_.await(*op);
    if (Error error = op->error()) return error;
  }
  return Everyones{*sent, *received};
}

// Two exchanges: the locations of the files, then the results of mapping them. So all ranks return
// the same.
Result<std::shared_ptr<GroupSharedMemory>> MappedMemory::make(int rank, size_t bytes,
                                                              const Exchange& exchange) {
  bytes += kPage;
  auto own = create(bytes);
  const Place place = own.ok() ? own.value().place : Place();
  const auto places = exchange(std::as_bytes(std::span(&place, 1)));
  if (!places.ok()) return places.error();
  auto mapped = own.ok() ? map_all(rank, own.value(), bytes, places.value())
                         : Result<std::vector<Mapping>>(own.error());
  // The file stays open until all ranks have reported that they mapped it, because they open it by
  // its descriptor in /proc. A rank without memory takes part, too; otherwise the others would
  // wait.
  const std::byte good{mapped.ok()};
  const auto all = exchange(std::span(&good, 1));
  if (!all.ok()) return all.error();
  const auto has = [](const std::vector<std::byte>& said) { return said[0] == std::byte{1}; };
  if (!std::ranges::all_of(all.value(), has)) return std::shared_ptr<GroupSharedMemory>();
  return std::shared_ptr<GroupSharedMemory>(new MappedMemory(std::move(mapped.value())));
}

Bytes MappedMemory::of_rank(int rank) const {
  const Mapping& mapping = mappings_[static_cast<size_t>(rank)];
  return Bytes(mapping.data(), mapping.size()).subspan(kPage);
}

}  // namespace ringdist
