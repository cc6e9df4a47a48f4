#include "transport/shm/block_imports.h"

#include "transport/shm/segment_layout.h"

namespace ringdist::shm {

void BlockImports::begin(uint64_t last) {
  former_.merge(blocks_);
  blocks_.clear();
  former_until_ = last;
}

void BlockImports::read_until(uint64_t consumed) {
  if (!former_.empty() && consumed >= former_until_) former_.clear();
}

void BlockImports::clear() {
  blocks_.clear();
  former_.clear();
}

Error BlockImports::on_event(const Fd& socket) {
  while (true) {
    auto heard = receive_export_message(socket);
    if (!heard.ok()) return heard.error();
    if (!heard.value()) return {};
    if (Error error = on_message(socket, *heard.value())) return error;
  }
}

Error BlockImports::on_message(const Fd& socket, const ReceivedExportMessage& heard) {
  const ExportMessage& note = heard.note;
  if (note.word == ExportMessageType::kDetach) {
    blocks_.erase(note.loan);  // also one that was refused
    return {};
  }
  if (note.word != ExportMessageType::kExport || note.loan >= kExportNumbers ||
      blocks_.contains(note.loan))
    return Error(ErrorKind::kProtocol, "a loan that makes no sense");
  const ExportMessageType answer =
      take(heard) ? ExportMessageType::kTaken : ExportMessageType::kRefused;
  // Where it cannot be said the peer goes on to copy.
  (void)send_export_message(socket, {.word = answer, .loan = note.loan});
  return {};
}

bool BlockImports::take(const ReceivedExportMessage& heard) {
  if (!heard.file || blocks_.size() >= kMaxExports) return false;
  auto mapping = map_memory(heard.file, heard.note.bytes, /*writable=*/false);
  if (!mapping.ok()) return false;
  blocks_[heard.note.loan] = std::move(mapping.value());
  return true;
}

std::optional<ConstBytes> BlockImports::find(uint64_t place, size_t bytes) const {
  const auto& from = blocks_.contains(export_of(place)) ? blocks_ : former_;
  const auto it = from.find(export_of(place));
  if (it == from.end()) return std::nullopt;
  const ConstBytes block{it->second.data(), it->second.size()};
  const uint64_t offset = offset_in_export(place);
  if (offset > block.size() || bytes > block.size() - offset) return std::nullopt;
  return block.subspan(offset, bytes);
}

}  // namespace ringdist::shm
