// Codec map of a compressed op: the codecs of each part of its buffer, and the memory of their
// residuals. Blocks restart at each part, so that the scales of a parameter depend on its own
// values only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "codec/codec.h"

namespace ringdist {

// Part of the buffer with one pair of codecs.
struct CodecMapPart {
  int64_t offset = 0;  // elements of the op's buffer
  int64_t count = 0;
  CodecPair codecs;
  // Residual of `count` fp32 values, in units of a contribution. Null means no error feedback.
  float* residual = nullptr;
  // Memory of `count` values in which the op leaves the new residual, complete once it has
  // succeeded. If null, the op updates `residual` in place, so that a failure leaves it invalid.
  float* next = nullptr;

  int64_t end() const { return offset + count; }
};

// Parts in order, without gaps, from 0 to the op's count. It is immutable once an op has it; then
// any thread may read it.
struct CodecMap {
  std::vector<CodecMapPart> parts;
  std::shared_ptr<void> keep_alive;  // keeps the residuals alive until the op has ended

  int64_t count() const { return parts.empty() ? 0 : parts.back().end(); }
  // Returns a hash of the properties that must be equal on all ranks: counts, codecs, and use of
  // error feedback.
  uint64_t hash() const;
  // Returns the wire id of the first codec that compresses, for messages; 0 if none does.
  uint8_t codec_id() const;
  // Returns a text for messages: "int4, 3 parts". It names each pair of codecs once.
  std::string describe() const;
};

}  // namespace ringdist
