#include "engine/device/devices.h"

#include <gtest/gtest.h>

namespace ringdist {
namespace {

// Covers both cases of a machine without a GPU: the library was built or not.
TEST(Devices, AreFoundOrItIsSaidWhyNot) {
  const auto library = load_cuda();
  if (!library.ok()) {
    EXPECT_NE(library.error().message().find("make cuda"), std::string::npos);
    return;
  }
  EXPECT_STRNE(library.value()->built_for, "");
  const DeviceList found = library.value()->devices();
  EXPECT_EQ(found.devices.empty(), !found.problem.empty()) << found.problem;
  for (const DeviceInfo& device : found.devices) EXPECT_GT(device.bytes, 0) << device.name;
  EXPECT_EQ(load_cuda().value(), library.value());
}

}  // namespace
}  // namespace ringdist
