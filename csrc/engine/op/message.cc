#include "engine/op/message.h"

#include <cstring>

namespace ringdist {

ConstBytes header_bytes(const MessageHeader& header) {
  return {reinterpret_cast<const std::byte*>(&header),
          carries_fingerprint(header) ? sizeof(MessageHeader) : kShortHeaderBytes};
}

bool parse_header(ConstBytes bytes, MessageHeader& header) {
  if (bytes.size() < kShortHeaderBytes || bytes.size() > sizeof(MessageHeader)) return false;
  std::memcpy(static_cast<void*>(&header), bytes.data(), bytes.size());
  if (header.type > MessageType::kService) return false;
  return bytes.size() == header_bytes(header).size();
}

}  // namespace ringdist
