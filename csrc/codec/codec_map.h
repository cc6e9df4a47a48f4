// The block map of a compressed op: which codecs each part of its buffer has, and where what they
// lose is kept. Blocks restart at each part, so that a parameter's scales are its own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "codec/codec.h"

namespace ringdist {

struct CodecMapPart {
  int64_t offset = 0;  // elements of the op's buffer
  int64_t count = 0;
  CodecPair codecs;
  // `count` fp32, in units of a contribution: what is owed; null: no error feedback.
  float* residual = nullptr;
  // Where the op leaves what will be owed, all of it, once it has succeeded; null: in `residual`
  // itself, which a failure then spoils.
  float* next = nullptr;

  int64_t end() const { return offset + count; }
};

// Parts in order, without gaps, from 0 to the op's count. Immutable once an op has it.
struct CodecMap {
  std::vector<CodecMapPart> parts;
  std::shared_ptr<void> keep_alive;  // holds the residuals until the op has ended

  int64_t count() const { return parts.empty() ? 0 : parts.back().end(); }
  // Over what all ranks must have alike: counts, codecs, error feedback or not.
  uint64_t hash() const;
  // For messages: the wire id of the first codec that compresses; 0 if none does.
  uint8_t codec_id() const;
  // "int4, 3 parts", for messages
  std::string describe() const;
};

}  // namespace ringdist
