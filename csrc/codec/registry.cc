// Registry of codecs, in the order of tables and messages. A new codec needs a file that defines
// x_row(), and its row here.
#include "codec/codec.h"

namespace ringdist {

CodecRow none_row();
CodecRow fp16_row();
CodecRow bf16_row();
CodecRow fp8_row();
CodecRow int8_row();
CodecRow int4_row();
CodecRow int2_row();
CodecRow onebit_row();
CodecRow topk_row();
CodecRow randomk_row();
CodecRow lossless_row();

std::span<const CodecRow> codecs() {
  static const CodecRow rows[] = {
      none_row(), fp16_row(),   bf16_row(), fp8_row(),     int8_row(),     int4_row(),
      int2_row(), onebit_row(), topk_row(), randomk_row(), lossless_row(),
  };
  return rows;
}

std::string_view codec_name(uint8_t wire_id) {
  for (const auto& row : codecs())
    if (row.wire_id == wire_id) return row.name;
  return "?";
}

std::string codec_names() {
  std::string out;
  for (const auto& row : codecs()) out += (out.empty() ? "" : ", ") + std::string(row.name);
  return out;
}

std::string codec_names_where(const std::function<bool(const Codec&)>& such) {
  std::string out;
  for (const CodecRow& row : codecs()) {
    const auto codec = parse_codec(row.examples.front());
    if (codec.ok() && such(*codec.value()))
      out += (out.empty() ? "" : ", ") + std::string(row.name);
  }
  return out;
}

}  // namespace ringdist
