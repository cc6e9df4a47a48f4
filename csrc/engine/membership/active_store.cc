#include "engine/membership/active_store.h"

#include <array>
#include <future>
#include <utility>

#include "base/describe.h"
#include "control/control_history.h"

namespace ringdist {
namespace {

// Key of the mark that makes a store the witness of a generation.
std::string mark_of(uint64_t nonce) {
  return "ringdist/membership/" + format_id(nonce) + "/votes_here";
}
// Key of the witness' vote.
std::string key_of(uint64_t nonce) { return "ringdist/membership/" + format_id(nonce) + "/vote"; }

}  // namespace

void StoreWitness::open(uint64_t nonce) {
  context_.pool().run([source = source_, nonce] {
    constexpr std::array kMark = {std::byte{1}};
    if (const auto store = source->get(); store.ok())
      (void)store.value()->set(mark_of(nonce), kMark);  // without the mark the store has no vote
  });
}

// The mark is checked first, so that an empty store which was restarted is not mistaken for one
// without a vote.
Result<std::optional<Accepted>> StoreWitness::ask(Store& store, const GenerationId& generation) {
  const std::string key = key_of(generation.nonce);
  const auto marked = store.check({mark_of(generation.nonce)});
  if (!marked.ok()) return marked.error();
  if (!marked.value())
    return Error(ErrorKind::kSystem, "the store does not have the votes of this generation");
  const auto value = store.find(key);
  if (!value.ok()) return value.error();
  if (!value.value()) return std::optional<Accepted>();
  const auto& bytes = *value.value();
  auto vote = decode_vote({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!vote.ok()) return vote.error();
  return std::optional<Accepted>(std::move(vote.value()));
}

// Only one read at a time waits for a store. Further ones fail at once.
void StoreWitness::read(const GenerationId& generation,
                        std::function<void(const Result<std::optional<Accepted>>&)> then) {
  if (!source_->begin()) return then(Error(ErrorKind::kTimeout, "the store does not answer"));
  context_.pool().run([source = source_, generation, then = std::move(then)] {
    const auto store = source->get();
    const auto vote = store.ok() ? ask(*store.value(), generation) : store.error();
    source->end();
    then(vote);
  });
}

void StoreWitness::cast(const GenerationId& generation, const std::optional<Accepted>& before,
                        const Accepted& vote, std::function<void(bool)> then) {
  const std::string from = before ? encode_vote(*before) : "";
  context_.pool().run([source = source_, key = key_of(generation.nonce), from,
                       to = encode_vote(vote), then = std::move(then)] {
    const auto store = source->get();
    if (!store.ok()) return then(false);
    const auto there = store.value()->compare_set(key, from, to);
    then(there.ok() && there.value() == to);
  });
}

bool StoreWitness::answers(Duration time) {
  if (!source_->begin()) return false;
  auto said = std::make_shared<std::promise<bool>>();
  auto answer = said->get_future();
  context_.pool().run([source = source_, said = std::move(said)] {
    const auto store = source->get();
    const bool answers = store.ok() && store.value()->check({"ringdist/membership"}).ok();
    source->end();
    said->set_value(answers);
  });
  try {
    return answer.wait_for(time) == std::future_status::ready && answer.get();
  } catch (const std::future_error&) {
    return false;
  }
}

ActiveStore::ActiveStore(Context& context, const CommunicatorOptions& options)
    : context_(context),
      first_(options.unprefixed_store ? options.unprefixed_store : options.store),
      home_(options.store_server),
      store_(at("")) {}

std::shared_ptr<LazyStore> ActiveStore::at(const std::string& address) const {
  return std::make_shared<LazyStore>(
      [first = first_, home = home_, address]() -> Result<std::shared_ptr<Store>> {
        if (address.empty() && first) return first;
        if (address.empty() || !home) return Error(ErrorKind::kSystem, "the group has no store");
        return home->open(address);
      });
}

void ActiveStore::move_to(const std::string& address) {
  std::lock_guard lock(mutex_);
  if (address_ == address) return;
  address_ = address;
  store_ = at(address);
}

std::string ActiveStore::offer() const { return home_ ? home_->offer(context_.service_ip()) : ""; }

}  // namespace ringdist
