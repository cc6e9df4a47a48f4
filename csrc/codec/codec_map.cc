#include "codec/codec_map.h"

#include "base/hash.h"

namespace ringdist {

uint64_t CodecMap::hash() const {
  Hash out;
  for (const CodecMapPart& part : parts) {
    out.add(part.count);
    out.add(part.codecs.contribution->name());
    out.add(part.codecs.result->name());
    out.add(static_cast<uint8_t>(part.residual != nullptr));
  }
  return out.value();
}

uint8_t CodecMap::codec_id() const {
  for (const CodecMapPart& part : parts)
    for (const CodecPtr& codec : {part.codecs.contribution, part.codecs.result})
      if (codec->wire_id() != 0) return codec->wire_id();
  return 0;
}

std::string CodecMap::describe() const {
  std::string out;
  const auto used = [&](std::string_view name) {
    return ("," + out + ",").find("," + std::string(name) + ",") != std::string::npos;
  };
  for (const CodecMapPart& part : parts)
    if (const std::string name = part.codecs.name(); !used(name))
      out += (out.empty() ? "" : ",") + name;
  return out + ", " + std::to_string(parts.size()) + (parts.size() == 1 ? " part" : " parts");
}

}  // namespace ringdist
