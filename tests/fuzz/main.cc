// Program of `make fuzz`. libFuzzer calls these functions. FUZZ_TARGET in the environment names the
// target, and FUZZ_SEEDS the folder to which its seeds are written first.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/log.h"
#include "fuzz/target.h"

namespace {

const ringdist::test::FuzzTarget* target = nullptr;

}  // namespace

// Any other name gives a list of all targets, with the expressions for their files.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  ringdist::set_log_level(ringdist::LogLevel::kError);
  const char* name = std::getenv("FUZZ_TARGET");
  for (const auto* one : ringdist::test::kFuzzTargets) {
    if (name && one->name == name) target = one;
    if (!name)
      std::printf("%.*s %.*s\n", static_cast<int>(one->name.size()), one->name.data(),
                  static_cast<int>(one->sources.size()), one->sources.data());
  }
  if (!target) std::exit(name ? 1 : 0);
  const char* folder = std::getenv("FUZZ_SEEDS");
  if (!folder) return 0;
  size_t number = 0;
  for (const auto& seed : target->seeds()) {
    std::ofstream file(folder + ("/seed-" + std::to_string(number++)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(seed.data()),
               static_cast<std::streamsize>(seed.size()));
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // -1: not an input that is worth keeping.
  return target->run({reinterpret_cast<const std::byte*>(data), size}) ? 0 : -1;
}
