// LocalRanks: a group of ranks inside this process, for studies that want the real schedules and
// codecs but no processes and no wire.
#include <pybind11/stl.h>

#include <map>
#include <numeric>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <tuple>
#include <vector>

#include "bindings/bind.h"
#include "codec/block_map.h"
#include "codec/residual.h"
#include "engine/communicator.h"
#include "torch/coding.h"
#include "torch/errors.h"
#include "torch/store.h"
#include "torch/tensors.h"
#include "transport/local/local.h"

namespace py = pybind11;

namespace ringdist {
namespace {

using Tensors = std::vector<at::Tensor>;
// Elements, codec, error feedback or not.
using Part = std::tuple<int64_t, std::string, bool>;

// All ranks are called at once by the same thread: whoever takes this long hangs.
constexpr Milliseconds kTimeout{120'000};

[[noreturn]] void refuse(const std::string& what) {
  throw_error(Error(ErrorKind::kInvalidArgument, "ringdist: LocalRanks: " + what));
}

// One Context per rank, over the transport `local` without delays. Errors become exceptions. One
// thread at a time.
class LocalRanks {
 public:
  explicit LocalRanks(int size);
  ~LocalRanks();
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  int size() const { return size_; }
  void all_reduce(const Tensors& tensors, const std::vector<Part>& parts,
                  const std::optional<Tensors>& residuals, bool average,
                  const std::string& algorithm);
  uint64_t bytes_sent() const;

 private:
  using Group = std::vector<std::shared_ptr<Communicator>>;

  void check_flat(const std::string& argument, const Tensors& tensors, int64_t count) const;
  std::shared_ptr<const BlockMap> make_map(const std::vector<Part>& parts,
                                           const at::Tensor* residual, int64_t count);
  const Group& group(const std::string& algorithm);
  Error reduce(const Group& group, std::vector<OpRequest> requests);

  const int size_;
  const c10::intrusive_ptr<c10d::Store> store_ = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::shared_ptr<Context>> contexts_;
  std::map<std::string, Group> groups_;  // by algorithm
  std::map<std::string, CodecPair> codecs_;
};

LocalRanks::LocalRanks(int size) : size_(size) {
  if (size < 1) refuse("size must be at least 1, got " + std::to_string(size));
  ContextOptions wanted;
  // No variable of the environment may change what a study finds.
  wanted.config = Config::parse({}, {}).value();
  wanted.store_host = "127.0.0.1";
  wanted.transports = {"local"};
  wanted.local_network = make_local_network();
  for (int rank = 0; rank < size; ++rank) {
    auto context = Context::create(wanted);
    throw_if(context.error());
    contexts_.push_back(context.value());
  }
}

LocalRanks::~LocalRanks() {
  groups_.clear();
  for (auto& context : contexts_) context->shutdown();
}

const LocalRanks::Group& LocalRanks::group(const std::string& algorithm) {
  if (const auto it = groups_.find(algorithm); it != groups_.end()) return it->second;
  auto config = Config::parse({}, {{"algorithm", algorithm}});
  throw_if(config.error());
  Group out;
  for (int rank = 0; rank < size_; ++rank) {
    CommunicatorOptions wanted;
    wanted.rank = rank;
    wanted.size = size_;
    wanted.name = "local " + algorithm;
    wanted.members.resize(static_cast<size_t>(size_));
    std::iota(wanted.members.begin(), wanted.members.end(), 0);
    wanted.timeout = kTimeout;
    wanted.config = config.value();
    wanted.store = wrap_store(store_);
    auto communicator = Communicator::create(contexts_[static_cast<size_t>(rank)], wanted);
    throw_if(communicator.error());
    out.push_back(communicator.value());
  }
  return groups_[algorithm] = std::move(out);
}

void LocalRanks::check_flat(const std::string& argument, const Tensors& tensors,
                            int64_t count) const {
  if (tensors.size() != static_cast<size_t>(size_))
    refuse(argument + " must have one tensor per rank, " + std::to_string(size_) + "; got " +
           std::to_string(tensors.size()));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = argument + "[" + std::to_string(i) + "]";
    const at::Tensor& tensor = tensors[i];
    throw_if(check_tensor("LocalRanks", name, tensor, /*written=*/true));
    if (tensor.scalar_type() != at::kFloat || tensor.dim() != 1 || !tensor.is_contiguous() ||
        tensor.numel() != count)
      refuse(name + " must be a contiguous float32[" + std::to_string(count) + "], it is " +
             describe(tensor));
    for (size_t j = 0; j < i; ++j)
      if (share_memory(tensor, tensors[j]))
        refuse(name + " shares memory with " + argument + "[" + std::to_string(j) + "]");
  }
}

std::shared_ptr<const BlockMap> LocalRanks::make_map(const std::vector<Part>& parts,
                                                     const at::Tensor* residual, int64_t count) {
  auto map = std::make_shared<BlockMap>();
  float* const owed = residual != nullptr ? residual->data_ptr<float>() : nullptr;
  bool coded = false;
  for (const auto& [elements, spec, feedback] : parts) {
    if (!codecs_.contains(spec)) {
      auto parsed = parse_coding("parts", spec, size_);
      throw_if(parsed.error());
      codecs_[spec] = parsed.value();
    }
    if (elements < 0) refuse("parts: a part of " + std::to_string(elements) + " elements");
    if (feedback && owed == nullptr)
      refuse("parts: '" + spec + "' with error feedback needs residuals");
    coded |= !codecs_[spec].plain();
    const int64_t at = map->count();
    map->parts.push_back({at, elements, codecs_[spec], feedback ? owed + at : nullptr});
  }
  if (map->count() != count)
    refuse("parts cover " + std::to_string(map->count()) + " elements of " + std::to_string(count));
  if (!coded) return nullptr;
  if (residual != nullptr) map->keep_alive = std::make_shared<at::Tensor>(residual->detach());
  return map;
}

void LocalRanks::all_reduce(const Tensors& tensors, const std::vector<Part>& parts,
                            const std::optional<Tensors>& residuals, bool average,
                            const std::string& algorithm) {
  const int64_t count = tensors.empty() ? 0 : tensors[0].numel();
  check_flat("tensors", tensors, count);
  if (residuals) check_flat("residuals", *residuals, count);
  std::vector<OpRequest> requests;
  for (size_t rank = 0; rank < tensors.size(); ++rank) {
    OpRequest request;
    request.reduce_op = average ? ReduceOp::kAvg : ReduceOp::kSum;
    request.count = count;
    request.output = Buffer(sizeof(float));
    append(request.output, tensors[rank]);
    request.blocks = make_map(parts, residuals ? &(*residuals)[rank] : nullptr, count);
    request.keep_alive = std::make_shared<at::Tensor>(tensors[rank].detach());
    requests.push_back(std::move(request));
  }
  throw_if(reduce(group(algorithm), std::move(requests)));
}

Error LocalRanks::reduce(const Group& group, std::vector<OpRequest> requests) {
  std::vector<std::shared_ptr<Op>> ops;
  Error first;
  for (size_t rank = 0; rank < requests.size() && !first; ++rank) {
    auto op = group[rank]->submit(std::move(requests[rank]), /*will_wait=*/false);
    if (op.ok())
      ops.push_back(op.value());
    else
      first = op.error();
  }
  // Ranks that have called would wait for those that may not.
  if (first && !ops.empty()) group[0]->abort(first.message());
  for (size_t rank = 0; rank < ops.size(); ++rank) {
    group[rank]->wait(*ops[rank], std::nullopt);
    if (!first) first = ops[rank]->error();
  }
  return first;
}

uint64_t LocalRanks::bytes_sent() const {
  uint64_t out = 0;
  for (const auto& context : contexts_) out += context->statistics().bytes_sent.load();
  return out;
}

py::tuple codec_traits(const std::string& spec, int size) {
  auto codecs = parse_coding("spec", spec, size);
  throw_if(codecs.error());
  const CodecPair& pair = codecs.value();
  return py::make_tuple(pair.name(), pair.contribution->bits(), feedback_by_default(pair));
}

}  // namespace

void bind_local(py::module_& module) {
  const py::call_guard<py::gil_scoped_release> no_gil;
  py::class_<LocalRanks>(module, "LocalRanks")
      .def(py::init<int>(), py::arg("size"), no_gil)
      .def_property_readonly("size", &LocalRanks::size)
      .def("all_reduce", &LocalRanks::all_reduce, py::arg("tensors"), py::arg("parts"),
           py::arg("residuals"), py::arg("average"), py::arg("algorithm") = "direct", no_gil)
      .def("bytes_sent", &LocalRanks::bytes_sent);
  module.def("codec_traits", &codec_traits, py::arg("spec"), py::arg("size"));
}

}  // namespace ringdist
