// Store of a job with a key: values are encrypted and bound to their names. So a process without
// the key that reads or writes the store learns only the names, and can delete values or bring back
// earlier ones of the same name. With certificates, values are signed and not encrypted. Counters
// are plain: they only number what ranks create.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffers.h"
#include "os/tls_key.h"
#include "rendezvous/store.h"

namespace ringdist {

// Name of the values that are never sealed. A rank that cannot read its key writes there why it
// does not come. A process that can write to the store can end the group's creation in any case.
inline constexpr std::string_view kWithdrawalName = "withdrawn";

// Returns true for bytes that a SealedStore has written.
bool is_sealed(ConstBytes value);

// View of a store that seals values. Besides errors of the store, reads fail with kMismatch,
// blaming the index of the key, if a value was not sealed with this key under this name. Any
// thread.
class SealedStore final : public Store {
 public:
  // `scope` completes the names if `store` is a view with a prefix.
  SealedStore(std::shared_ptr<Store> store, std::shared_ptr<const TlsKey> key, std::string scope)
      : store_(std::move(store)), key_(std::move(key)), scope_(std::move(scope)) {}

  Error set(const std::string& key, std::span<const std::byte> value) override;
  Result<std::vector<std::vector<std::byte>>> multi_get(
      const std::vector<std::string>& keys) override;
  Result<int64_t> add(const std::string& key, int64_t amount) override {
    return store_->add(key, amount);
  }
  // Reads the value first, because the same value has another form each time that it is sealed.
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) override;
  Error remove(const std::string& key) override { return store_->remove(key); }
  Result<bool> check(const std::vector<std::string>& keys) override { return store_->check(keys); }

 private:
  std::vector<std::byte> seal(const std::string& key, ConstBytes value) const;
  Result<std::vector<std::byte>> unseal(const std::string& key, ConstBytes sealed) const;

  const std::shared_ptr<Store> store_;
  const std::shared_ptr<const TlsKey> key_;
  const std::string scope_;
};

// Returns `store`, sealed if there is a key.
std::shared_ptr<Store> sealed_with(std::shared_ptr<const TlsKey> key, std::shared_ptr<Store> store,
                                   std::string scope);

}  // namespace ringdist
