// Parses specs of codecs and of pairs of codecs.
#include <algorithm>

#include "codec/codec.h"
#include "codec/none.h"
#include "codec/rotated.h"

namespace ringdist {
namespace {

constexpr std::string_view kRotation = "+h";

// Removes the text up to the first `end`, and `end` itself, from `text` and returns it. Without an
// `end` it takes all.
std::string_view take_until(std::string_view& text, char end) {
  const size_t at = text.find(end);
  const std::string_view out = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return out;
}

const CodecRow* find_row(std::string_view name) {
  const auto row = std::ranges::find(codecs(), name, &CodecRow::name);
  return row == codecs().end() ? nullptr : &*row;
}

// Returns the spec of the codec of results for a contribution without ">B". A rotation applies to
// both.
std::string default_result(const Codec& contribution, int size) {
  std::string_view name = contribution.name();
  const CodecRow* row = find_row(name.substr(0, name.find_first_of(":+")));
  if (row == nullptr || row->result_of == nullptr) return std::string(name);
  const bool rotated = name.ends_with(kRotation);
  if (rotated) name.remove_suffix(kRotation.size());
  return row->result_of(name, size) + std::string(rotated ? kRotation : "");
}

// Returns the error for a name without a row. Methods of DDP get a text of their own, because users
// pass them here by mistake.
Error unknown(std::string_view name) {
  const std::string quoted = "'" + std::string(name) + "'";
  if (name == "powersgd" || name == "auto")
    return Error(ErrorKind::kInvalidArgument,
                 quoted + " is no codec of an operation: torch_ringdist.ddp.compress and " +
                     "CompressState take it, alone, as codec or in a schedule" +
                     (name == "auto" ? "" : " or rule"));
  return Error(ErrorKind::kInvalidArgument,
               "unknown codec " + quoted + "; have: " + codec_names() +
                   " (add +h for a rotation, A>B for a pair); for DDP also powersgd:RANK and auto");
}

}  // namespace

Result<CodecPtr> parse_codec(std::string_view spec) {
  std::string_view text = spec;
  const bool rotated = text.ends_with(kRotation);
  if (rotated) text.remove_suffix(kRotation.size());
  const std::string_view name = take_until(text, ':');
  const CodecRow* row = find_row(name);
  if (row == nullptr) return unknown(name);
  Result<CodecPtr> made = row->make(text);
  return made.ok() && rotated ? rotate(made.value()) : made;
}

Result<CodecPair> parse_codec_pair(std::string_view spec, int size) {
  if (spec.empty()) spec = kNoCodec;
  if (const CodecRow* row = find_row(spec); row != nullptr && !row->alone.empty())
    spec = row->alone;
  const bool two = spec.find('>') != std::string_view::npos;
  std::string_view rest = spec;
  const std::string_view first = take_until(rest, '>');
  Result<CodecPtr> contribution = parse_codec(first);
  if (!contribution.ok()) return contribution.error();
  const std::string second = two ? std::string(rest) : default_result(*contribution.value(), size);
  Result<CodecPtr> result = parse_codec(second);
  if (!result.ok()) return result.error();
  return CodecPair{contribution.value(), result.value()};
}

Result<CodecPair> parse_compression(std::string_view argument, const std::string& spec, int size) {
  auto codecs = parse_codec_pair(spec, size);
  if (codecs.ok()) return codecs;
  return codecs.error().prefixed("ringdist: " + std::string(argument) + "='" + spec + "': ");
}

Error check_single_codec(const std::string& spec) {
  if (spec.find('>') == std::string::npos) return {};
  return Error(ErrorKind::kInvalidArgument,
               "ringdist: codec='" + spec + "': an allgather encodes once, so it takes one codec");
}

bool CodecPair::plain() const {
  return contribution->name() == kNoCodec && result->name() == kNoCodec;
}

std::string CodecPair::name() const {
  const std::string a(contribution->name());
  const std::string b(result->name());
  return a == b ? a : a + ">" + b;
}

}  // namespace ringdist
