// Binds functions on codecs: their names and their speed on this machine.
#include <pybind11/stl.h>

#include "bindings/bind.h"
#include "codec/codec_metrics.h"
#include "torch/base/errors.h"

namespace py = pybind11;

namespace ringdist {
namespace {

// Returns (spec, description) for the examples of all codecs.
py::list codec_examples() {
  py::list out;
  for (const CodecRow& row : codecs())
    for (std::string_view example : row.examples)
      out.append(py::make_tuple(std::string(example), std::string(row.description)));
  return out;
}

// Measures the speed and error of a codec, for about `seconds` seconds. The speeds have the units
// of CodecMetrics. Releases the GIL meanwhile.
py::dict measure(const std::string& spec, size_t elements, double seconds) {
  auto codec = parse_codec(spec);
  throw_if(codec.error());
  CodecMetrics figures;
  {
    py::gil_scoped_release release;
    figures = measure_codec(*codec.value(), elements, seconds);
  }
  py::dict out;
  out["codec"] = std::string(codec.value()->name());
  out["wire_ratio"] = figures.wire_ratio;
  out["relative_error"] = figures.relative_error;
  out["encode"] = figures.encode;
  out["encode_with_residual"] = figures.encode_with_residual;
  out["decode"] = figures.decode;
  out["decode_add"] = figures.decode_add;
  out["memory_copy"] = figures.memory_copy;
  return out;
}

}  // namespace

void bind_codecs(py::module_& module) {
  module.def("codec_examples", &codec_examples);
  module.def("measure_codec", &measure, py::arg("spec"), py::arg("elements"), py::arg("seconds"));
}

}  // namespace ringdist
