#include "torch/ops/point_to_point.h"

#include <string>
#include <string_view>

#include "torch/errors.h"

namespace ringdist {
namespace {

Call message(std::string_view op, c10d::OpType type, const char* title, const Tensors& tensors,
             Envelope envelope) {
  throw_if(check_single(op, "tensor", tensors, /*written=*/!envelope.sends));
  const DType dtype = value_of(to_dtype(op, "tensor", tensors[0]));
  if (envelope.tag < 0)
    throw_error(invalid_argument(
        op, "invalid tag: " + std::to_string(envelope.tag) + "; it must be at least 0"));
  // Several are usually begun before one is waited for.
  Call call(Collective::kPointToPoint, dtype, type, title, {c10d::kUnsetTimeout, /*async=*/true});
  call.inputs = call.outputs = tensors;
  call.request.envelope = envelope;
  call.request.count = tensors[0].numel();
  if (envelope.sends)
    call.read(tensors[0]);
  else
    call.write(tensors[0]);
  return call;
}

Error check_peer(RankAndSize place, std::string_view op, std::string_view what, int peer) {
  if (peer >= 0 && peer < place.size) return {};
  return invalid_argument(op, "invalid " + std::string(what) + " rank: " + std::to_string(peer) +
                                  "; it must be in [0, " + std::to_string(place.size) + ")");
}

}  // namespace

Call send_call(RankAndSize place, const Tensors& tensors, int to, int tag) {
  throw_if(check_peer(place, "send", "destination", to));
  return message("send", c10d::OpType::SEND, "ringdist:send", tensors, {to, tag, /*sends=*/true});
}

Call recv_call(RankAndSize place, const Tensors& tensors, int from, int tag) {
  throw_if(check_peer(place, "recv", "source", from));
  return message("recv", c10d::OpType::RECV, "ringdist:recv", tensors,
                 {from, tag, /*sends=*/false});
}

Call recv_any_call(const Tensors& tensors, int tag) {
  return message("recv", c10d::OpType::RECVANYSOURCE, "ringdist:recvAnySource", tensors,
                 {Envelope::kAnySource, tag, /*sends=*/false});
}

}  // namespace ringdist
