#include "engine/mapped_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "base/hash.h"
#include "os/host.h"
#include "os/random.h"

namespace ringdist {
namespace {

constexpr size_t kPage = 4096;  // the first one holds the file's number

// Where the file of a rank is. All zeros: nowhere.
struct Place {
  uint64_t host = 0;
  uint64_t number = 0;
  int32_t process = 0;
  int32_t descriptor = -1;
};

struct Own {
  Fd file;
  Mapping mapping;
  Place place;
};

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

// Error also where that is another file by now, or another process's.
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

// Those of all ranks; an Error if one is missing.
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

Result<std::shared_ptr<GroupSharedMemory>> MappedMemory::make(int rank, size_t bytes,
                                                              const Exchange& exchange) {
  bytes += kPage;
  auto own = create(bytes);
  const Place place = own.ok() ? own.value().place : Place();
  const auto places = exchange(std::as_bytes(std::span(&place, 1)));
  if (!places.ok()) return places.error();
  auto mapped = own.ok() ? map_all(rank, own.value(), bytes, places.value())
                         : Result<std::vector<Mapping>>(own.error());
  // The file stays open until all have said so.
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
