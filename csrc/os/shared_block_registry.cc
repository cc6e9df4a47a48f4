#include "os/shared_block_registry.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/log.h"
#include "os/host.h"
#include "os/memfd.h"

namespace ringdist {

Result<std::shared_ptr<SharedBlock>> SharedBlock::map(Fd file, size_t bytes) {
  void* data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (data == MAP_FAILED) return system_error("mmap", errno);
  madvise(data, bytes, MADV_HUGEPAGE);  // only if the system permits huge pages for shared memory
  seal_against_writing(file);
  return std::shared_ptr<SharedBlock>(
      new SharedBlock(std::move(file), static_cast<std::byte*>(data), bytes));
}

bool SharedBlock::contains(ConstBytes range) const {
  return range.data() >= data_ && range.size() <= size_ &&
         range.data() <= data_ + (size_ - range.size());
}

void SharedBlock::free() {
  if (!freed_.exchange(true, std::memory_order_acq_rel)) munmap(data_, size_);
}

namespace {

size_t round_to_pages(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

// Returns the limit of blocks. At most a quarter of the descriptors is used, because others need
// some, too.
size_t most_blocks() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return SharedBlockRegistry::kMost;
  return std::min<size_t>(SharedBlockRegistry::kMost, limit.rlim_cur / 4);
}

// Makes the registry when the library is loaded. Otherwise, a child that is forked while another
// thread makes it would wait for ever.
[[maybe_unused]] const SharedBlockRegistry& blocks_at_load = SharedBlockRegistry::of_process();

// Returns the number of regions that the calling thread has open. A forked child starts with 0: no
// process reads in place what the workers of a DataLoader allocate.
int& region_depth() {
  struct Depth {
    int value = 0;
    ForkMark mark;
  };
  thread_local Depth mine;
  if (mine.mark.forked()) mine = Depth();
  return mine.value;
}

}  // namespace

// Never destroyed, because memory is freed and forks happen during exit, too.
SharedBlockRegistry& SharedBlockRegistry::of_process() {
  static SharedBlockRegistry& instance = make();
  return instance;
}

SharedBlockRegistry& SharedBlockRegistry::make() {
  auto* made = new SharedBlockRegistry;
  pthread_atfork([] { of_process().mutex_.lock(); },
                 [] {
                   ++of_process().forks_;
                   of_process().mutex_.unlock();
                 },
                 [] {
                   of_process().after_fork_in_child();
                   of_process().mutex_.unlock();
                 });
  return *made;
}

// Unmaps the blocks that the parent keeps for its next tensors. The list is leaked: destroying it
// would close descriptors. That needs the lock of the fork guard, which is still held here if its
// handler runs later.
void SharedBlockRegistry::after_fork_in_child() {
  watchers_.clear();
  regions_ = 0;
  auto& retired = *new RetiredBlocks;
  while (!idle_.empty()) drop_oldest(retired);
  for (const auto& block : retired) block->free();
}

bool SharedBlockRegistry::in_region() { return region_depth() > 0; }

void SharedBlockRegistry::enter_region() {
  if (region_depth()++ > 0) return;
  std::lock_guard lock(mutex_);
  ++regions_;
}

void SharedBlockRegistry::leave_region() {
  int& depth = region_depth();
  if (depth == 0) return;
  if (--depth > 0) return;
  RetiredBlocks retired;
  {
    std::lock_guard lock(mutex_);
    if (--regions_ > 0) return;
    while (!idle_.empty()) drop_oldest(retired);
  }
  retire(retired);
}

// The lock is not held while memory is made, which can take long. Threads that race may therefore
// exceed the limit by a few blocks.
Result<std::byte*> SharedBlockRegistry::allocate(size_t bytes) {
  const size_t size = round_to_pages(bytes);
  {
    std::lock_guard lock(mutex_);
    if (std::byte* data = reuse(size)) return data;
  }
  if (Error error = require_memory(bytes)) return error;
  if (const size_t most = most_blocks(); count_.load(std::memory_order_relaxed) >= most)
    return without(Error(ErrorKind::kSystem, std::to_string(most) + " tensors are there"));
  auto file = create_memory("ringdist-tensor", size);
  if (!file.ok()) return without(file.error());
  if (Error error = ringdist::allocate(file.value(), 0, size))
    return error.prefixed("ringdist: a tensor of " + std::to_string(bytes) + " bytes: ");
  auto block = SharedBlock::map(std::move(file.value()), size);
  if (!block.ok()) return without(block.error());
  std::byte* const data = block.value()->data();
  std::lock_guard lock(mutex_);
  blocks_.emplace(data, Tracked{std::move(block.value()), forks_});
  count_.store(blocks_.size(), std::memory_order_release);
  return data;
}

// A process is killed if memory is missing at its first access, or if the last pages of the machine
// are used.
Error SharedBlockRegistry::require_memory(size_t bytes) {
  const auto fits = [bytes](size_t available) { return bytes <= available - available / 16; };
  auto available = available_memory();
  if (!available || fits(*available)) return {};
  RetiredBlocks retired;
  {
    std::lock_guard lock(mutex_);
    while (!idle_.empty()) drop_oldest(retired);
  }
  retire(retired);
  retired.clear();
  available = available_memory();
  if (!available || fits(*available)) return {};
  return Error(ErrorKind::kSystem, "ringdist: a tensor of " + std::to_string(bytes) +
                                       " bytes does not fit into shared memory: the machine has " +
                                       std::to_string(*available) + " left");
}

// Returns the smallest idle block that is large enough and wastes at most a quarter, or null.
std::byte* SharedBlockRegistry::reuse(size_t bytes) {
  auto best = idle_.end();
  const auto size = [this](std::byte* data) { return blocks_.at(data).block->size(); };
  for (auto it = idle_.begin(); it != idle_.end(); ++it)
    if (size(*it) >= bytes && size(*it) - bytes <= bytes / 4 &&
        (best == idle_.end() || size(*it) < size(*best)))
      best = it;
  if (best == idle_.end()) return nullptr;
  std::byte* const data = *best;
  idle_.erase(best);
  Tracked& tracked = blocks_.at(data);
  tracked.idle = false;
  tracked.forks = forks_;
  idle_bytes_ -= tracked.block->size();
  return data;
}

// Keeps a freed block for reuse, and drops the oldest ones while more than kMostIdle bytes are
// idle.
void SharedBlockRegistry::make_idle(std::byte* data, Tracked& tracked, RetiredBlocks& retired) {
  idle_.push_back(data);
  tracked.idle = true;
  idle_bytes_ += tracked.block->size();
  while (idle_bytes_ > kMostIdle) drop_oldest(retired);
}

// Moves the oldest idle block to `retired`.
void SharedBlockRegistry::drop_oldest(RetiredBlocks& retired) {
  const auto node = blocks_.find(idle_.front());
  retired.push_back(node->second.block);
  idle_bytes_ -= node->second.block->size();
  idle_.erase(idle_.begin());
  blocks_.erase(node);
  count_.store(blocks_.size(), std::memory_order_release);
}

// The count is increased before the doorbells ring, so that a watcher which wakes sees it.
void SharedBlockRegistry::retire(const RetiredBlocks& retired) {
  uint64_t is_exported = 0;
  for (const auto& block : retired) {
    block->free();
    is_exported += block->is_exported() && !block->inherited();
  }
  if (is_exported == 0) return;
  std::lock_guard lock(mutex_);
  frees_.fetch_add(is_exported, std::memory_order_release);
  for (const Doorbell* doorbell : watchers_) doorbell->ring();
}

Result<std::byte*> SharedBlockRegistry::without(const Error& cause) {
  std::lock_guard lock(mutex_);
  if (!std::exchange(warned_, true))
    log(LogLevel::kWarn, "shared memory has no room for more tensors, " + cause.message() +
                             ": further ones lie in usual memory");
  return nullptr;
}

bool SharedBlockRegistry::free(std::byte* data) {
  RetiredBlocks retired;
  {
    std::lock_guard lock(mutex_);
    const auto it = blocks_.find(data);
    if (it == blocks_.end() || it->second.idle) return false;
    // A block that a child may also have is not reused: the child would see its new contents.
    if (regions_ > 0 && it->second.forks == forks_ && !it->second.block->inherited()) {
      make_idle(data, it->second, retired);
    } else {
      retired.push_back(it->second.block);
      blocks_.erase(it);
      count_.store(blocks_.size(), std::memory_order_release);
    }
  }
  retire(retired);
  return true;
}

// The count comes first, so that sends of a process without blocks take no lock.
std::shared_ptr<SharedBlock> SharedBlockRegistry::find(ConstBytes range) const {
  if (count_.load(std::memory_order_acquire) == 0) return nullptr;
  std::lock_guard lock(mutex_);
  auto it = blocks_.upper_bound(const_cast<std::byte*>(range.data()));
  if (it == blocks_.begin()) return nullptr;
  const auto& block = (--it)->second.block;
  return block->contains(range) && !block->inherited() ? block : nullptr;
}

void SharedBlockRegistry::watch(const Doorbell& doorbell) {
  std::lock_guard lock(mutex_);
  watchers_.push_back(&doorbell);
}

void SharedBlockRegistry::unwatch(const Doorbell& doorbell) {
  std::lock_guard lock(mutex_);
  std::erase(watchers_, &doorbell);
}

SharedBlockRegistry::Figures SharedBlockRegistry::figures() const {
  std::lock_guard lock(mutex_);
  Figures out{blocks_.size() - idle_.size(), 0, bytes_read_.load(std::memory_order_relaxed)};
  for (const auto& [data, tracked] : blocks_) out.bytes += tracked.idle ? 0 : tracked.block->size();
  return out;
}

}  // namespace ringdist
