#include "rendezvous/sealed_store.h"

#include <algorithm>
#include <span>
#include <utility>

#include "rendezvous/rank_info.h"

namespace ringdist {
namespace {

constexpr std::string_view kSealMagic = "rd-seal1";

ConstBytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string text_of(ConstBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool is_plain(std::string_view key) {
  return key.starts_with("ringdist/") &&
         key.ends_with(std::string("/") + std::string(kWithdrawalName));
}

}  // namespace

bool is_sealed(ConstBytes value) {
  return value.size() >= kSealMagic.size() &&
         std::ranges::equal(value.first(kSealMagic.size()), bytes_of(kSealMagic));
}

std::vector<std::byte> SealedStore::seal(const std::string& key, ConstBytes value) const {
  const auto sealed = key_->seal(value, scope_ + '\n' + key);
  std::vector<std::byte> out;
  out.reserve(kSealMagic.size() + sealed.size());
  std::ranges::copy(bytes_of(kSealMagic), std::back_inserter(out));
  std::ranges::copy(sealed, std::back_inserter(out));
  return out;
}

Result<std::vector<std::byte>> SealedStore::unseal(const std::string& key,
                                                   ConstBytes sealed) const {
  auto out = is_sealed(sealed) ? key_->unseal(sealed.subspan(kSealMagic.size()),
                                              scope_ + '\n' + key, TlsKey::Expired::kRefused)
                               : std::nullopt;
  if (!out)
    return Error(ErrorKind::kMismatch,
                 "the value of '" + key +
                     "' in the store was not sealed with the key or authority of this process: "
                     "another process "
                     "has written it, or it comes from a rank with another or with none; " +
                     std::string(kSameCredentials));
  return std::move(out->value);
}

Error SealedStore::set(const std::string& key, std::span<const std::byte> value) {
  return store_->set(key,
                     is_plain(key) ? std::vector(value.begin(), value.end()) : seal(key, value));
}

Result<std::vector<std::vector<std::byte>>> SealedStore::multi_get(
    const std::vector<std::string>& keys) {
  auto values = store_->multi_get(keys);
  if (!values.ok()) return values;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (is_plain(keys[i])) continue;
    auto plain = unseal(keys[i], values.value()[i]);
    if (!plain.ok()) return plain.error().blame(static_cast<int>(i));
    values.value()[i] = std::move(plain.value());
  }
  return values;
}

Result<std::string> SealedStore::compare_set(const std::string& key, const std::string& expected,
                                             const std::string& desired) {
  const auto now = store_->find(key);
  if (!now.ok()) return now.error();
  if (!now.value() && !expected.empty()) return expected;
  std::string from;
  if (now.value()) {
    const auto plain = unseal(key, *now.value());
    if (!plain.ok()) return plain.error();
    if (text_of(plain.value()) != expected) return text_of(plain.value());
    from = text_of(*now.value());
  }
  auto after = store_->compare_set(key, from, text_of(seal(key, bytes_of(desired))));
  if (!after.ok()) return after;
  const auto plain = unseal(key, bytes_of(after.value()));
  return plain.ok() ? Result(text_of(plain.value())) : plain.error();
}

std::shared_ptr<Store> sealed_with(std::shared_ptr<const TlsKey> key, std::shared_ptr<Store> store,
                                   std::string scope) {
  if (!key || !store) return store;
  return std::make_shared<SealedStore>(std::move(store), std::move(key), std::move(scope));
}

}  // namespace ringdist
