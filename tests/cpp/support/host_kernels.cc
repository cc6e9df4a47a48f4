#include "support/host_kernels.h"

#include <source_location>

#include "base/check.h"
#include "cuda/kernel/lossless_launches.h"
#include "cuda/kernel/quantized_coder.h"
#include "cuda/kernel/randomk_coder.h"
#include "cuda/kernel/reduction.h"
#include "cuda/kernel/round16_coder.h"
#include "cuda/kernel/sign_coder.h"
#include "cuda/kernel/topk_coder.h"
#include "cuda/kernel/wide.h"
#include "support/host_launcher.h"
#include "support/host_warp.h"

namespace ringdist::host_kernels {
namespace {

// Calls run(coder) with the Coder of a code.
template <typename Run>
void with_coder(gpu::Coding coding, Run run) {
  switch (coding.code) {
    case gpu::Code::kHalf:
      return run(gpu::Round16Coder<rounding16::Half>());
    case gpu::Code::kBFloat:
      if (coding.stochastic) return run(gpu::Round16Coder<rounding16::StochasticBFloat>());
      return run(gpu::Round16Coder<rounding16::BFloat>());
    case gpu::Code::kFp8E4M3:
      return run(gpu::QuantizedCoder<gpu::Fp8<E4M3>>());
    case gpu::Code::kFp8E5M2:
      return run(gpu::QuantizedCoder<gpu::Fp8<E5M2>>());
    case gpu::Code::kInt8:
      return run(gpu::QuantizedCoder<gpu::Int8>{.stochastic = coding.stochastic});
    case gpu::Code::kInt4:
      return run(gpu::QuantizedCoder<gpu::Signed<4>>());
    case gpu::Code::kInt2:
      return run(gpu::QuantizedCoder<gpu::Signed<2>>());
    case gpu::Code::kOnebit:
      return run(gpu::SignCoder());
    case gpu::Code::kTopk:
      return run(gpu::TopkCoder{{coding.k}});
    case gpu::Code::kRandomk:
      return run(gpu::RandomkCoder{{coding.k}});
    case gpu::Code::kLossless:
      break;
  }
  check_failed("a code without a Coder", std::source_location::current());
}

template <bool kRotated, typename Coder, typename Call>
void launch(Coder coder, const Call& call) {
  gpu::with_body<kRotated>(coder, call, [](const auto& body) { for_each_batch(body); });
}

template <typename Call>
void launch_any(gpu::Coding coding, const Call& call) {
  if (coding.code == gpu::Code::kLossless) {
    HostLauncher launcher;
    return gpu::launch_lossless(launcher, coding.dtype, call);
  }
  with_coder(coding, [&](auto coder) {
    if (coding.rotated)
      launch<true>(coder, call);
    else
      launch<false>(coder, call);
  });
}

template <typename Body>
void for_each_element(const Body& body) {
  for (int64_t i = 0; i < body.count; ++i) body(i);
}

}  // namespace

void encode(gpu::Coding coding, const gpu::EncodeCall& call) { launch_any(coding, call); }

void decode(gpu::Coding coding, const gpu::DecodeCall& call) { launch_any(coding, call); }

void reduce(const gpu::ReduceCall& call) {
  const ReduceLoop loop = reduce_loop(call.dtype, call.op, static_cast<size_t>(call.count));
  const bool known = gpu::with_reduction(loop, call.divisor, [&](auto type, auto op) {
    for_each_element(gpu::Reduction<decltype(type), decltype(op)>{
        call.sources, call.out, call.divisor, static_cast<int64_t>(loop.count)});
  });
  check(known, "a reduction without a loop");
}

void run(const gpu::Elements& call) {
  std::visit([](const auto& body) { for_each_element(body); }, call);
}

}  // namespace ringdist::host_kernels
