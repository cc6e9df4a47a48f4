#include "transport/tcp/data_port.h"

#include "base/serialize.h"

namespace ringdist {
namespace {

constexpr uint32_t kDataMagic = 0x64746452;  // "Rdtd"
constexpr uint32_t kDataVersion = 1;

// Compares in a time that does not depend on the bytes, so that nobody can guess them one by one.
bool are_equal(const DataSecret& a, const DataSecret& b) {
  std::byte different{0};
  for (size_t i = 0; i < a.size(); ++i) different |= a[i] ^ b[i];
  return different == std::byte{0};
}

}  // namespace

std::vector<std::byte> DataHello::frame() const {
  Writer body;
  body.put(kDataMagic).put(kDataVersion).put(from).put(to).put(channel).put(secret);
  const std::vector<std::byte> bytes = body.take();
  std::vector<std::byte> out =
      Writer().put(static_cast<uint32_t>(bytes.size())).put(kFrameType).take();
  out.insert(out.end(), bytes.begin(), bytes.end());
  return out;
}

std::optional<DataHello> DataHello::decode(ConstBytes body) {
  Reader in(body);
  const auto magic = in.get<uint32_t>();
  const auto version = in.get<uint32_t>();
  DataHello out;
  out.from = in.get<uint64_t>();
  out.to = in.get<uint64_t>();
  out.channel = in.get<uint32_t>();
  out.secret = in.get<DataSecret>();
  if (!in.ended() || magic != kDataMagic || version != kDataVersion || out.channel == 0)
    return std::nullopt;
  return out;
}

void DataPort::add(const DataSecret& secret, OnConnection handler) {
  std::lock_guard lock(mutex_);
  transports_.emplace_back(secret, std::move(handler));
}

void DataPort::remove(const DataSecret& secret) {
  std::lock_guard lock(mutex_);
  std::erase_if(transports_, [&](const auto& one) { return are_equal(one.first, secret); });
}

void DataPort::adopt(Fd socket, ConstBytes hello) {
  const auto named = DataHello::decode(hello);
  if (!named) return;
  std::lock_guard lock(mutex_);
  for (const auto& [secret, handler] : transports_)
    if (are_equal(secret, named->secret)) return handler(std::move(socket), *named);
}

}  // namespace ringdist
