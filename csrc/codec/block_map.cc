#include "codec/block_map.h"

namespace ringdist {
namespace {

// FNV-1a, 64 bits.
class Hash {
 public:
  void add(uint8_t byte) { hash_ = (hash_ ^ byte) * 0x100000001b3; }
  void add(std::string_view text) {
    for (char c : text) add(static_cast<uint8_t>(c));
    add(uint8_t{0});  // where the text ends
  }
  void add(int64_t number) {
    for (int shift = 0; shift < 64; shift += 8) add(static_cast<uint8_t>(number >> shift));
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace

uint64_t BlockMap::hash() const {
  Hash out;
  for (const BlockPart& part : parts) {
    out.add(part.count);
    out.add(part.codecs.contribution->name());
    out.add(part.codecs.result->name());
    out.add(static_cast<uint8_t>(part.residual != nullptr));
  }
  return out.value();
}

std::string BlockMap::describe() const {
  std::string out;
  const auto used = [&](std::string_view name) {
    return ("," + out + ",").find("," + std::string(name) + ",") != std::string::npos;
  };
  for (const BlockPart& part : parts)
    if (const std::string name = part.codecs.name(); !used(name))
      out += (out.empty() ? "" : ",") + name;
  return out + ", " + std::to_string(parts.size()) + (parts.size() == 1 ? " part" : " parts");
}

}  // namespace ringdist
