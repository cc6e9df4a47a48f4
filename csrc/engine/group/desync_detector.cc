#include "engine/group/desync_detector.h"

namespace ringdist {

std::vector<int> DesyncDetector::missing(uint64_t number) const {
  std::vector<int> out;
  const auto& record_peer_call = peer_calls(number);
  for (int peer = 0; peer < static_cast<int>(absent_.size()); ++peer)
    if (peer != rank_ && !record_peer_call.contains(peer)) out.push_back(peer);
  return out;
}

std::string DesyncDetector::absence(int rank, uint64_t number, TimePoint started) const {
  const AbsenceRecord& said = absent_[static_cast<size_t>(rank)];
  if (said.when < started || said.last >= number)
    return "which does not say whether it has called it";
  return "which has not called it (" +
         (said.last == 0 ? "it has called none" : "its last: #" + std::to_string(said.last)) + ")";
}

Error disagreement(uint64_t number, const std::string& us, const Fingerprint& ours,
                   const std::string& them, const Fingerprint& theirs) {
  std::string text = "ranks disagree on op #" + std::to_string(number) + ": " + us + " called " +
                     ours.describe() + ", " + them + " called " + theirs.describe();
  // The text can name what differs only if it is not in the descriptions, which do not have the
  // plan.
  Fingerprint same_plan = theirs;
  same_plan.plan = ours.plan;
  const bool alike = same_plan == ours && theirs.codec_id() == ours.codec_id() &&
                     theirs.on_device() == ours.on_device();
  if (alike && ours.count == Fingerprint::kPerEdge)
    text += " of other sizes";
  else if (alike && ours.codec_id() != 0)
    text +=
        " with other settings of compression: the codec's parameters, +h, A>B, rules, "
        "warmup_steps, error_feedback or the sizes of parameters differ";
  else if (alike)
    text +=
        " with another plan: residual, RINGDIST_ALGORITHM, RINGDIST_SEGMENT_BYTES or their "
        "options differ";
  return Error(ErrorKind::kMismatch, text);
}

}  // namespace ringdist
