// Binds LocalRanks: a group of ranks inside this process. It is for studies that need real
// schedules and codecs, but no processes and no network.
#include <pybind11/stl.h>

#include <algorithm>
#include <latch>
#include <map>
#include <numeric>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <tuple>
#include <vector>

#include "bindings/bind.h"
#include "compress/compression_method.h"
#include "compress/low_rank.h"
#include "engine/communicator.h"
#include "torch/base/errors.h"
#include "torch/base/tensors.h"
#include "torch/torch_store.h"
#include "transport/local/local_transport.h"

namespace py = pybind11;

namespace ringdist {
namespace {

using Tensors = std::vector<at::Tensor>;
// Elements, rows (the first dimension of the parameter), codec, and use of error feedback.
using Part = std::tuple<int64_t, int64_t, std::string, bool>;

// One thread calls all ranks at once, so an op that takes this long is stuck.
constexpr Milliseconds kTimeout{120'000};

// Raises an error about an argument.
[[noreturn]] void refuse(const std::string& what) {
  throw_error(Error(ErrorKind::kInvalidArgument, "ringdist: LocalRanks: " + what));
}

// Has one Context per rank, over the transport `local` without delays. Errors become exceptions.
// One thread at a time.
class LocalRanks {
 public:
  explicit LocalRanks(int size);
  ~LocalRanks();
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  // Returns the number of ranks.
  int size() const { return size_; }
  // Averages or sums one tensor per rank, in place, and waits for the result. `parts` divides the
  // tensors into parameters. `residuals` are updated if a part has error feedback. `algorithm` is a
  // value of the option of that name.
  void all_reduce(const Tensors& tensors, const std::vector<Part>& parts,
                  const std::optional<Tensors>& residuals, bool average,
                  const std::string& algorithm);
  // Returns the bytes that all ranks have sent.
  uint64_t bytes_sent() const;

 private:
  using Group = std::vector<std::shared_ptr<Communicator>>;

  // Raises an error unless there is one flat float32 tensor per rank, and none share memory.
  void check_flat(const std::string& argument, const Tensors& tensors, int64_t count) const;
  // Returns the compression method of a spec, from the cache if possible.
  const CompressionMethodPtr& method(const std::string& spec, bool feedback);
  // Plans the parts of one rank, as GradientCompressor does for a bucket.
  BucketPlan make_plan(const std::vector<Part>& parts, const at::Tensor* residual, int64_t count);
  // Returns the allreduce over the slices that are not averaged by PowerSGD.
  OpRequest make_request(const BucketPlan& plan, const at::Tensor& tensor, bool average) const;
  // Returns the group that uses an algorithm, and creates it at the first use.
  const Group& group(const std::string& algorithm);
  // Runs one op on each rank, and waits for all. Returns the first error.
  Error reduce(const Group& group, std::vector<OpRequest> requests);
  // Averages the matrices of all ranks by PowerSGD, and waits for the result.
  Error reduce_low_rank(const std::vector<BucketPlan>& plans, const Tensors& tensors);
  float* right_factor(size_t rank, const BucketPlan::LowRank& matrix);

  const int size_;
  const c10::intrusive_ptr<c10d::Store> store_ = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::shared_ptr<Context>> contexts_;
  std::map<std::string, Group> groups_;  // by algorithm
  std::map<std::pair<std::string, bool>, CompressionMethodPtr> methods_;
  std::vector<std::unique_ptr<LowRankReducer>> reducers_;  // by rank; created at the first use
  // Right factors of PowerSGD by (rank, offset of the matrix).
  std::map<std::pair<size_t, int64_t>, std::vector<float>> rights_;
};

LocalRanks::LocalRanks(int size) : size_(size) {
  if (size < 1) refuse("size must be at least 1, got " + std::to_string(size));
  ContextOptions wanted;
  // The environment must not influence a study.
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
  reducers_.clear();
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

const CompressionMethodPtr& LocalRanks::method(const std::string& spec, bool feedback) {
  CompressionMethodPtr& out = methods_[{spec, feedback}];
  if (!out) {
    auto made = make_compression_method("parts", spec, size_, feedback);
    throw_if(made.error());
    out = made.value();
  }
  return out;
}

BucketPlan LocalRanks::make_plan(const std::vector<Part>& parts, const at::Tensor* residual,
                                 int64_t count) {
  BucketPlan plan;
  float* const old_residual = residual != nullptr ? residual->data_ptr<float>() : nullptr;
  int64_t at = 0;
  for (const auto& [elements, rows, spec, feedback] : parts) {
    if (elements < 0) refuse("parts: a part of " + std::to_string(elements) + " elements");
    if (rows < 1 || elements % rows != 0)
      refuse("parts: " + std::to_string(elements) + " elements in " + std::to_string(rows) +
             " rows");
    if (feedback && old_residual == nullptr)
      refuse("parts: '" + spec + "' with error feedback needs residuals");
    method(spec, feedback)->add({at, elements, rows, feedback ? old_residual + at : nullptr}, plan);
    at += elements;
  }
  if (at != count)
    refuse("parts cover " + std::to_string(at) + " elements of " + std::to_string(count));
  if (residual != nullptr)
    plan.codec_map->keep_alive = std::make_shared<at::Tensor>(residual->detach());
  return plan;
}

OpRequest LocalRanks::make_request(const BucketPlan& plan, const at::Tensor& tensor,
                                   bool average) const {
  OpRequest out;
  out.reduce_op = average ? ReduceOp::kAvg : ReduceOp::kSum;
  out.output = Buffer(sizeof(float));
  for (const ParameterSlice& piece : plan.pieces) {
    append(out.output, tensor.narrow(0, piece.offset, piece.count));
    out.count += piece.count;
  }
  if (plan.coded) out.codec_map = plan.codec_map;
  out.keep_alive = std::make_shared<at::Tensor>(tensor.detach());
  return out;
}

void LocalRanks::all_reduce(const Tensors& tensors, const std::vector<Part>& parts,
                            const std::optional<Tensors>& residuals, bool average,
                            const std::string& algorithm) {
  const int64_t count = tensors.empty() ? 0 : tensors[0].numel();
  check_flat("tensors", tensors, count);
  if (residuals) check_flat("residuals", *residuals, count);
  std::vector<BucketPlan> plans;
  std::vector<OpRequest> requests;
  for (size_t rank = 0; rank < tensors.size(); ++rank) {
    plans.push_back(make_plan(parts, residuals ? &(*residuals)[rank] : nullptr, count));
    requests.push_back(make_request(plans[rank], tensors[rank], average));
  }
  const bool low_rank = !plans[0].low_rank.empty();
  if (low_rank && !average) refuse("parts: powersgd averages; average=False is a sum");
  throw_if(reduce(group(algorithm), std::move(requests)));
  if (low_rank) throw_if(reduce_low_rank(plans, tensors));
}

// Returns the right factor. All ranks begin with the same noise, and continue with the last
// average, which is equal on all of them.
float* LocalRanks::right_factor(size_t rank, const BucketPlan::LowRank& matrix) {
  std::vector<float>& out = rights_[{rank, matrix.slice.offset}];
  if (std::ssize(out) != matrix.shape.right()) out = first_right(matrix.shape);
  return out.data();
}

Error LocalRanks::reduce_low_rank(const std::vector<BucketPlan>& plans, const Tensors& tensors) {
  if (reducers_.empty()) {
    std::vector<std::unique_ptr<LowRankReducer>> reducers;
    for (const auto& communicator : group("direct")) {
      auto duplicate = communicator->duplicate("/low_rank");
      throw_if(duplicate.error());
      reducers.push_back(std::make_unique<LowRankReducer>(duplicate.value()));
    }
    reducers_ = std::move(reducers);
  }
  std::vector<std::vector<LowRankMatrix>> matrices(plans.size());
  for (size_t rank = 0; rank < plans.size(); ++rank)
    for (const BucketPlan::LowRank& matrix : plans[rank].low_rank) {
      float* values = tensors[rank].data_ptr<float>() + matrix.slice.offset;
      matrices[rank].push_back({matrix.shape, DType::kFloat32, reinterpret_cast<std::byte*>(values),
                                matrix.slice.residual, right_factor(rank, matrix)});
    }
  std::latch done(size_);
  std::vector<Error> errors(plans.size());
  for (size_t rank = 0; rank < plans.size(); ++rank)
    reducers_[rank]->reduce(std::move(matrices[rank]), [&errors, &done, rank](Error error) {
      errors[rank] = std::move(error);
      done.count_down();
    });
  // Each rank has a reducer with a thread of its own, so all of them progress while this one waits.
  done.wait();
  const auto first = std::ranges::find_if(errors, [](const Error& error) { return bool(error); });
  return first == errors.end() ? Error() : *first;
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
  // Ranks that have called would wait for those that could not.
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

// Returns the name, bits per element and default error feedback of a compression method.
py::tuple codec_traits(const std::string& spec, int size) {
  auto method = make_compression_method("spec", spec, size, std::nullopt);
  throw_if(method.error());
  const CompressionMethod& found = *method.value();
  return py::make_tuple(found.name(), found.bits(), found.feedback());
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
