#include "base/trace_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace ringdist {
namespace {

std::string path_for(const std::string& name) { return testing::TempDir() + "/" + name; }

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> out;
  for (std::string line; std::getline(file, line);) out.push_back(line);
  return out;
}

TimePoint at_micros(int64_t micros) { return TimePoint(std::chrono::microseconds(micros)); }

TEST(TraceFile, HasALineForEachEvent) {
  const std::string path = path_for("trace.json");
  {
    auto file = TraceFile::create(path, 3, "rank 3");
    ASSERT_TRUE(file.ok()) << file.error().what();
    TraceFile& trace = *file.value();
    trace.add({"allreduce.x", "ALLREDUCE", "", at_micros(1000), at_micros(1500)});
    trace.add({"allreduce.x", "say \"it\"\n", "a\\b", at_micros(2000), at_micros(2000)});
    trace.set_clock(at_micros(3000), std::chrono::nanoseconds(-1500));
    trace.flush();
  }
  const auto lines = lines_of(path);
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines[0], "[");
  EXPECT_EQ(lines[1], R"({"ph":"M","pid":3,"name":"process_name","args":{"name":"rank 3"}},)");
  EXPECT_NE(lines[2].find(R"("name":"start","ts":)"), std::string::npos) << lines[2];
  EXPECT_NE(lines[2].find(R"("start_time_since_epoch_in_micros":1)"), std::string::npos);
  EXPECT_EQ(lines[3],
            R"({"ph":"M","pid":3,"name":"thread_name","tid":1,"args":{"name":"allreduce.x"}},)");
  EXPECT_EQ(lines[4],
            R"({"ph":"X","pid":3,"tid":1,"ts":1000.000,"dur":500.000,"name":"ALLREDUCE"},)");
  EXPECT_EQ(lines[5], R"({"ph":"i","pid":3,"tid":1,"ts":2000.000,"s":"p",)"
                      R"("name":"say \"it\"\u000a","args":{"detail":"a\\b"}},)");
  EXPECT_EQ(lines[6],
            R"({"ph":"M","pid":3,"name":"clock","ts":3000.000,"args":{"offset_us":-1.500}},)");
}

TEST(TraceFile, IsWrittenWithoutBeingAsked) {
  const std::string path = path_for("alone.json");
  auto file = TraceFile::create(path, 0, "rank 0");
  ASSERT_TRUE(file.ok());
  const size_t before = lines_of(path).size();
  for (size_t i = 1; i < 4; ++i) {  // also the first event of a row, when no other waits
    file.value()->add({"row " + std::to_string(i), "what", "", at_micros(1), at_micros(2)});
    while (lines_of(path).size() < before + 2 * i) std::this_thread::yield();  // or hang
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  }
}

TEST(TraceFile, WhereItCannotBeWrittenItSaysSo) {
  const auto file = TraceFile::create("/no/such/folder/x", 0, "rank 0");
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.error().message().find("/no/such/folder/x: No such file"), std::string::npos);
}

}  // namespace
}  // namespace ringdist
