// Launches the kernels of the codec `lossless`.

#include <cuda_runtime_api.h>

#include <vector>

#include "cuda/kernel/blocks.h"
#include "cuda/kernel/families.h"
#include "cuda/kernel/lossless.h"

namespace ringdist::gpu {
namespace {

// Launches kernels on a stream and allocates memory for them. After the first error, does nothing
// more.
class StreamLauncher {
 public:
  explicit StreamLauncher(void* stream) : stream_(static_cast<cudaStream_t>(stream)) {}
  ~StreamLauncher() {
    for (void* const piece : pieces_) (void)cudaFreeAsync(piece, stream_);
  }
  StreamLauncher(const StreamLauncher&) = delete;
  StreamLauncher& operator=(const StreamLauncher&) = delete;

  // Returns memory for `count` elements of T, freed when the stream has done the launches. Returns
  // null for none, and after an error.
  template <typename T>
  T* memory(int64_t count) {
    void* piece = nullptr;
    if (error_ == cudaSuccess && count > 0)
      error_ = cudaMallocAsync(&piece, static_cast<size_t>(count) * sizeof(T), stream_);
    if (piece != nullptr) pieces_.push_back(piece);
    return static_cast<T*>(piece);
  }
  template <typename Body>
  void launch(const Body& body) {
    if (error_ == cudaSuccess) error_ = for_each_batch(stream_, body);
  }
  LaunchError error() const { return error_; }

 private:
  const cudaStream_t stream_;
  std::vector<void*> pieces_;
  LaunchError error_ = cudaSuccess;
};

}  // namespace

template <typename Call>
LaunchError launch_lossless(KernelCodec coding, CallSpan<Call> calls, void* stream) {
  StreamLauncher launcher(stream);
  for (const Call& call : calls) launch_lossless(launcher, coding.dtype, call);
  return launcher.error();
}

template LaunchError launch_lossless(KernelCodec, CallSpan<EncodeCall>, void*);
template LaunchError launch_lossless(KernelCodec, CallSpan<DecodeCall>, void*);

}  // namespace ringdist::gpu
