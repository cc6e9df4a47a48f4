// The NCCL library of this machine, if it has one.
#include "cuda/nccl/loaded_nccl.h"

#include <gtest/gtest.h>

#include <string>

namespace ringdist::gpu {
namespace {

TEST(LoadedNcclTest, IsThereOrSaysWhatToDo) {
  const auto loaded = LoadedNccl::load();
  if (!loaded.ok()) {
    EXPECT_EQ(loaded.error().kind(), ErrorKind::kSystem);
    const std::string& message = loaded.error().message();
    EXPECT_TRUE(message.find("pip install nvidia-nccl") != std::string::npos ||
                message.find("2.18.1 or later is needed") != std::string::npos)
        << message;
    GTEST_SKIP() << "no NCCL to call: " << message;
  }
  NcclApi& nccl = *loaded.value();
  EXPECT_GE(nccl.version(), NcclApi::kLeastVersion);
  EXPECT_NE(nccl.describe(NcclResult::kSystemError, nullptr).find("system error"),
            std::string::npos);
  NcclResult state = NcclResult::kSuccess;
  EXPECT_EQ(nccl.async_error(nullptr, &state), NcclResult::kInvalidArgument);
  EXPECT_EQ(nccl.group_start(), NcclResult::kSuccess);
  EXPECT_EQ(nccl.group_end(), NcclResult::kSuccess);
}

}  // namespace
}  // namespace ringdist::gpu
