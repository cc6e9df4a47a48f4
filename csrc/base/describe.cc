#include "base/describe.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

namespace ringdist {
namespace {

// Returns the bytes of the UTF-8 character at the beginning of `text`, or 0 if it is a control
// character, or none (RFC 3629).
size_t shown_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7f ? 1 : 0;
  const size_t size = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < size) return 0;
  uint32_t code = byte(0) & (0x7fU >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fU);
  }
  constexpr std::array<uint32_t, 3> kLeast{0xa0, 0x800, 0x10000};  // by size; 0x80 to 0x9f control
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code >= kLeast[size - 2] && code <= 0x10ffff && !surrogate ? size : 0;
}

}  // namespace

std::string format_id(uint64_t id) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(id));
  return text.data();
}

std::string printable(std::string_view text, size_t most) {
  std::string out;
  while (!text.empty() && out.size() < most) {
    const size_t shown = shown_bytes(text);
    if (shown > 0) {
      out += text.substr(0, shown);
    } else if (text[0] == '\n') {
      out += "\n    ";
    } else {
      std::array<char, 5> code{};
      std::snprintf(code.data(), code.size(), "\\x%02x", static_cast<uint8_t>(text[0]));
      out += code.data();
    }
    text.remove_prefix(std::max<size_t>(shown, 1));
  }
  return out;
}

std::string describe_process(int pid, const std::string& host_name) {
  return "pid " + (pid > 0 ? std::to_string(pid) : "unknown") + " on host " +
         (host_name.empty() ? "unknown" : host_name);
}

std::string describe_rank(int rank, const std::string& where) {
  return "rank " + std::to_string(rank) + (where.empty() ? "" : " (" + where + ")");
}

}  // namespace ringdist
