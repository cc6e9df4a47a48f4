#include "support/host_kernels.h"

#include <source_location>

#include "base/check.h"
#include "cuda/kernel/lossless.h"
#include "cuda/kernel/quantized_coder.h"
#include "cuda/kernel/reduction.h"
#include "cuda/kernel/round16_coder.h"
#include "cuda/kernel/sign_coder.h"
#include "cuda/kernel/sparse_coder.h"
#include "cuda/kernel/wide_blocks.h"
#include "support/host_launcher.h"
#include "support/host_warp.h"

namespace ringdist::host_kernels {
namespace {

// Calls run(coder) with the Coder that implements the given code.
template <typename Body>
void with_coder(gpu::KernelCodec coding, Body run) {
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
void launch(Coder coder, gpu::CallSpan<Call> calls) {
  (void)gpu::with_bodies<kRotated>(coder, calls, [](const auto& body) {
    for_each_batch(body);
    return gpu::LaunchError{0};
  });
}

template <typename Call>
void launch_any(gpu::KernelCodec coding, gpu::CallSpan<Call> calls) {
  if (coding.code == gpu::Code::kLossless) {
    HostLauncher launcher;
    for (const Call& call : calls) gpu::launch_lossless(launcher, coding.dtype, call);
    return;
  }
  with_coder(coding, [&](auto coder) {
    if (coding.rotated)
      launch<true>(coder, calls);
    else
      launch<false>(coder, calls);
  });
}

template <typename Body>
void for_each_element(const Body& body) {
  for (int64_t i = 0; i < body.count; ++i) body(i);
}

}  // namespace

void encode(gpu::KernelCodec coding, gpu::CallSpan<gpu::EncodeCall> calls) {
  launch_any(coding, calls);
}

void decode(gpu::KernelCodec coding, gpu::CallSpan<gpu::DecodeCall> calls) {
  launch_any(coding, calls);
}

void reduce(const gpu::ReduceCall& call) {
  const ReduceLoop loop = reduce_loop(call.dtype, call.op, static_cast<size_t>(call.count));
  const bool known = gpu::with_reduction(loop, call.divisor, [&](auto type, auto op) {
    for_each_element(gpu::Reduction<decltype(type), decltype(op)>{
        call.sources, call.out, call.divisor, static_cast<int64_t>(loop.count)});
  });
  check(known, "a reduction without a loop");
}

void run(gpu::CallSpan<gpu::Elements> calls) {
  (void)gpu::with_bodies(calls, [](const auto& body) {
    for (int64_t i = 0; i < body.batches(); ++i)
      for (int thread = 0; thread < gpu::kThreads; ++thread) body(thread, i);
    return gpu::LaunchError{0};
  });
}

}  // namespace ringdist::host_kernels
