#include "plan/fingerprint.h"

#include "codec/codec.h"

namespace ringdist {

std::string Fingerprint::describe() const {
  std::string out(collective_name(kind));
  if (kind == Collective::kBarrier) return out + (on_device() ? "(on cuda)" : "");
  out += "(" + std::string(dtype_name(dtype));
  if (count == kPerEdge)
    out += ", parts of given sizes";
  else
    out += ", " + std::to_string(count) + (count == 1 ? " element" : " elements");
  if (reduce_op != ReduceOp::kNone) out += ", " + std::string(reduce_op_name(reduce_op));
  if (is_collective(kind) && traits_of(kind).has_root) out += ", root " + std::to_string(root);
  if (kind == Collective::kAllreduce && root == kOfState)
    out += ", by CompressState.state_dict(), which all ranks must call";
  if (codec_id() != 0) out += ", codec " + std::string(codec_name(codec_id()));
  return out + (on_device() ? ", on cuda)" : ")");
}

}  // namespace ringdist
