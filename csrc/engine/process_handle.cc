#include "engine/process_handle.h"

#include <string_view>
#include <utility>
#include <vector>

#include "base/serialize.h"
#include "engine/op/message.h"

namespace ringdist {
namespace {

constexpr std::string_view kPrefix = "ringdist:";
constexpr std::string_view kDigits = "0123456789abcdef";
constexpr size_t kShown = 40;  // characters of what is no handle

Error no_handle(const std::string& text) {
  return {
      ErrorKind::kInvalidArgument,
      "'" + text.substr(0, kShown) + (text.size() > kShown ? "..." : "") +
          "' is no handle of a ringdist group: it must be what get_reconfigure_handle() returned"};
}

}  // namespace

std::string ProcessHandle::encode() const {
  std::string out(kPrefix);
  for (const std::byte byte : Writer().put(instance).put_bytes(entry.encode()).take()) {
    out += kDigits[static_cast<size_t>(byte) >> 4];
    out += kDigits[static_cast<size_t>(byte) & 15];
  }
  return out;
}

Result<ProcessHandle> ProcessHandle::decode(const std::string& text) {
  if (!text.starts_with(kPrefix) || (text.size() - kPrefix.size()) % 2 != 0) return no_handle(text);
  std::vector<std::byte> bytes;
  for (size_t i = kPrefix.size(); i < text.size(); i += 2) {
    const size_t high = kDigits.find(text[i]);
    const size_t low = kDigits.find(text[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return no_handle(text);
    bytes.push_back(static_cast<std::byte>(high << 4 | low));
  }
  Reader in(bytes);
  ProcessHandle out;
  out.instance = in.get<uint64_t>();
  auto entry = RankInfo::decode(in.get_bytes(), kWireVersion);
  if (!in.ended() || !entry) return no_handle(text);
  out.entry = std::move(*entry);
  if (out.entry.wire_version != kWireVersion)
    return Error(ErrorKind::kMismatch, "a handle is of wire version " +
                                           std::to_string(out.entry.wire_version) +
                                           "; this process has " + std::to_string(kWireVersion));
  return out;
}

}  // namespace ringdist
