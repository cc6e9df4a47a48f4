// Binds compression: ops with a codec, and gradient compression of DDP.
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include "bindings/bind.h"
#include "codec/none.h"
#include "torch/base/errors.h"
#include "torch/ddp/ddp_compressor.h"
#include "torch/ops/call_compressor.h"

namespace py = pybind11;

namespace ringdist {
namespace {

// Parses a codec spec for a group. Raises the error if the spec is invalid.
CodecPair codecs_of(const ProcessGroupRing& group, const std::string& spec) {
  auto codecs = parse_compression("codec", spec, group.getSize());
  throw_if(codecs.error());
  return codecs.value();
}

// Number of elements and codec of each piece of a contribution.
using Pieces = std::vector<std::pair<int64_t, std::string>>;

std::vector<CompressedPiece> pieces_of(const ProcessGroupRing& group, const Pieces& pieces) {
  std::vector<CompressedPiece> out;
  for (const auto& [count, codec] : pieces) out.push_back({count, codecs_of(group, codec)});
  return out;
}

// These three start an op with codecs of its own, and return its Work. They run without the GIL.
WorkPtr all_reduce(ProcessGroupRing& group, const at::Tensor& tensor, const c10d::ReduceOp& op,
                   const std::string& codec, const std::optional<at::Tensor>& residual,
                   bool async_op) {
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  options.asyncOp = async_op;
  return group.allreduce_compressed(tensor, options,
                                    {codecs_of(group, codec), residual.value_or(at::Tensor())});
}

WorkPtr reduce_scatter(ProcessGroupRing& group, const at::Tensor& output, const at::Tensor& input,
                       const c10d::ReduceOp& op, const std::string& codec,
                       const std::optional<at::Tensor>& residual, bool async_op,
                       const Pieces& pieces) {
  c10d::ReduceScatterOptions options;
  options.reduceOp = op;
  options.asyncOp = async_op;
  return group.reduce_scatter_compressed(output, input, options,
                                         {codecs_of(group, codec), residual.value_or(at::Tensor()),
                                          at::Tensor(), pieces_of(group, pieces)});
}

WorkPtr all_gather(ProcessGroupRing& group, const at::Tensor& output, const at::Tensor& input,
                   const std::string& codec, bool async_op, const Pieces& pieces) {
  throw_if(check_single_codec(codec));
  c10d::AllgatherOptions options;
  options.asyncOp = async_op;
  const CodecPtr one = codecs_of(group, codec).contribution;
  return group.allgather_compressed(
      output, input, options, {{one, one}, at::Tensor(), at::Tensor(), pieces_of(group, pieces)});
}

// Checks a codec for a single op, before a group exists. With `parameters`, the op moves
// parameters, which need a codec that keeps their values.
void check_coding(const std::string& codec, bool parameters) {
  if (parameters) throw_if(check_single_codec(codec));
  const CodecPair codecs = value_of(parse_compression("codec", codec, 2));
  if (!parameters || codecs.contribution->keeps_values()) return;
  throw_error(Error(ErrorKind::kInvalidArgument,
                    "ringdist: codec='" + codec +
                        "' loses too much of parameters; codecs that keep them: " +
                        codec_names_where([](const Codec& one) { return one.keeps_values(); })));
}

// Sums residuals over the group for CompressState.state_dict(), and waits for the result.
void sum_of_state(ProcessGroupRing& group, const at::Tensor& tensor) {
  group.allreduce_of_state(tensor)->wait();
}

// Checks the spec of a compression method. Returns its canonical name.
std::string check_codec(const std::string& argument, const std::string& spec, int size,
                        std::optional<bool> error_feedback) {
  auto method = make_compression_method(argument, spec, size, error_feedback);
  throw_if(method.error());
  return method.value()->name();
}

// Returns the CompressionReport as a dict.
py::dict report(DdpCompressor& compression) {
  CompressionReport r;
  {
    py::gil_scoped_release release;
    r = compression.report();
  }
  py::dict out;
  out["step"] = r.step;
  out["codec"] = r.codec;
  out["chosen"] = r.chosen;
  out["reason"] = r.reason;
  out["residual_norm"] = r.residual_norm;
  out["bytes_uncompressed"] = r.bytes_uncompressed;
  out["bytes_sent"] = r.bytes_sent;
  out["total_uncompressed"] = r.total_uncompressed;
  out["total_sent"] = r.total_sent;
  out["measured_step"] = r.measured_step;
  out["relative_error"] = r.relative_error;
  out["total_relative_error"] = r.total_relative_error;
  return out;
}

// Returns (steps, scale, residuals) for a checkpoint.
py::tuple state(DdpCompressor& compression, bool committed) {
  DdpCompressor::State s;
  {
    py::gil_scoped_release release;
    s = compression.state(committed);
  }
  return py::make_tuple(s.steps, s.scale, s.residuals);
}

// Starts the average of a bucket of DDP. Returns its Future.
std::shared_ptr<torch::jit::PythonFutureWrapper> run(DdpCompressor& compression,
                                                     c10d::GradBucket& bucket) {
  py::gil_scoped_release release;
  return std::make_shared<torch::jit::PythonFutureWrapper>(compression.run(bucket));
}

// Averages a bucket that does not come from DDP. It is number `index` of `count`, and has one flat
// buffer with the gradients of `parameters`, in their order.
std::shared_ptr<torch::jit::PythonFutureWrapper> run_bucket(DdpCompressor& compression,
                                                            size_t index, size_t count,
                                                            const at::Tensor& buffer,
                                                            std::vector<at::Tensor> parameters) {
  c10d::GradBucket bucket(index, count, buffer, {}, {}, {}, std::move(parameters), std::nullopt);
  return run(compression, bucket);
}

// Creates a compressor. With `all_buckets_come`, every bucket comes in each step, at any time.
std::shared_ptr<DdpCompressor> make_compression(c10::intrusive_ptr<ProcessGroupRing> group,
                                                std::string codec, int64_t warmup_steps,
                                                std::map<int64_t, std::string> schedule,
                                                std::optional<bool> error_feedback, double guard,
                                                int64_t measure_every, AtStep at_step,
                                                bool all_buckets_come) {
  CompressionOptions options{std::move(codec), warmup_steps, std::move(schedule),
                             error_feedback,   guard,        measure_every};
  using Buckets = DdpCompressor::Buckets;
  auto* made = new DdpCompressor(std::move(group), std::move(options), std::move(at_step),
                                 all_buckets_come ? Buckets::kAll : Buckets::kOfDdp);
  // The destructor waits for ops in flight, so it must not block other Python threads.
  return {made, [](DdpCompressor* compression) {
            if (PyGILState_Check() == 0) return delete compression;
            py::gil_scoped_release release;
            delete compression;
          }};
}

// Binds single ops with a codec, and checks of codecs.
void bind_operations(py::module_& module) {
  const py::call_guard<py::gil_scoped_release> no_gil;
  module.def("all_reduce", &all_reduce, py::arg("group"), py::arg("tensor"), py::arg("op"),
             py::arg("codec"), py::arg("residual"), py::arg("async_op"), no_gil);
  module.def("reduce_scatter", &reduce_scatter, py::arg("group"), py::arg("output"),
             py::arg("input"), py::arg("op"), py::arg("codec"), py::arg("residual"),
             py::arg("async_op"), py::arg("pieces") = Pieces(), no_gil);
  module.def("all_gather", &all_gather, py::arg("group"), py::arg("output"), py::arg("input"),
             py::arg("codec"), py::arg("async_op"), py::arg("pieces") = Pieces(), no_gil);
  module.def("sum_of_state", &sum_of_state, py::arg("group"), py::arg("tensor"), no_gil);
  module.def("check_codec", &check_codec, py::arg("argument"), py::arg("spec"), py::arg("size"),
             py::arg("error_feedback"));
  module.def("check_coding", &check_coding, py::arg("codec"), py::arg("parameters"));
  module.attr("MIN_COMPRESSED") = kMinCompressed;
  module.attr("NO_CODEC") = std::string(kNoCodec);
}

}  // namespace

void bind_compress(py::module_& module) {
  bind_operations(module);
  const py::call_guard<py::gil_scoped_release> no_gil;
  py::class_<DdpCompressor, std::shared_ptr<DdpCompressor>>(module, "Compression")
      .def(py::init(&make_compression), py::kw_only(), py::arg("group"), py::arg("codec"),
           py::arg("warmup_steps"), py::arg("schedule"), py::arg("error_feedback"),
           py::arg("guard"), py::arg("measure_every"), py::arg("at_step"),
           py::arg("all_buckets_come") = false)
      .def(
          "add_parameter",
          [](DdpCompressor& self, const at::Tensor& tensor, std::string name, std::string codec,
             std::string coarsest) {
            self.add_parameter(tensor, std::move(name), {std::move(codec), std::move(coarsest)});
          },
          py::arg("tensor"), py::arg("name"), py::arg("codec"), py::arg("coarsest"), no_gil)
      .def("run", &run, py::arg("bucket"))
      .def("run_bucket", &run_bucket, py::arg("index"), py::arg("count"), py::arg("buffer"),
           py::arg("parameters"))
      .def("report", &report)
      .def("residual_norm", &DdpCompressor::residual_norm, no_gil)
      .def("state", &state, py::arg("committed") = false)
      .def(
          "load",
          [](DdpCompressor& self, int64_t steps, double scale, DdpCompressor::Residuals residuals) {
            self.load({steps, scale, std::move(residuals)});
          },
          py::arg("steps"), py::arg("scale"), py::arg("residuals"), no_gil);
  module.def("register_comm_hook", &register_comm_hook, py::arg("reducer"), py::arg("compression"));
}

}  // namespace ringdist
