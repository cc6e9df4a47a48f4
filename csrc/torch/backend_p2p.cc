// Operations between two ranks. They take no op number, and have the group's timeout.
#include "torch/arguments.h"
#include "torch/backend.h"
#include "torch/errors.h"

namespace ringdist {
namespace {

Call message(std::string_view op, c10d::OpType type, const char* title, const Tensors& tensors,
             Endpoint endpoint) {
  throw_if(check_single(op, "tensor", tensors, /*written=*/!endpoint.sends));
  auto dtype = to_dtype(op, "tensor", tensors[0]);
  throw_if(dtype.error());
  if (endpoint.tag < 0)
    throw_error(invalid_argument(
        op, "invalid tag: " + std::to_string(endpoint.tag) + "; it must be at least 0"));
  // Several are usually begun before one is waited for.
  Call call(Collective::kPointToPoint, dtype.value(), type, title,
            {c10d::kUnsetTimeout, /*async=*/true});
  call.inputs = call.outputs = tensors;
  call.request.endpoint = endpoint;
  call.request.count = tensors[0].numel();
  if (endpoint.sends)
    call.read(tensors[0]);
  else
    call.write(tensors[0]);
  return call;
}

}  // namespace

Error ProcessGroupRing::check_peer(std::string_view op, std::string_view what, int peer) const {
  if (peer >= 0 && peer < getSize() && peer != getRank()) return {};
  return invalid_argument(op, "invalid " + std::string(what) + " rank: " + std::to_string(peer) +
                                  "; it must be in [0, " + std::to_string(getSize()) +
                                  ") and not this rank, " + std::to_string(getRank()));
}

ProcessGroupRing::WorkPtr ProcessGroupRing::send(Tensors& tensors, int to, int tag) {
  return run([&] {
    throw_if(check_peer("send", "destination", to));
    return message("send", c10d::OpType::SEND, "ringdist:send", tensors, {to, tag, /*sends=*/true});
  });
}

ProcessGroupRing::WorkPtr ProcessGroupRing::recv(Tensors& tensors, int from, int tag) {
  return run([&] {
    throw_if(check_peer("recv", "source", from));
    return message("recv", c10d::OpType::RECV, "ringdist:recv", tensors,
                   {from, tag, /*sends=*/false});
  });
}

ProcessGroupRing::WorkPtr ProcessGroupRing::recvAnysource(Tensors& tensors, int tag) {
  return run([&] {
    if (getSize() == 1)
      throw_error(
          invalid_argument("recv", "a group of one rank has no source rank to receive from"));
    return message("recv", c10d::OpType::RECVANYSOURCE, "ringdist:recvAnySource", tensors,
                   {Endpoint::kAnySource, tag, /*sends=*/false});
  });
}

}  // namespace ringdist
