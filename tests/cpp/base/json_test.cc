#include "base/json.h"

#include <gtest/gtest.h>

namespace ringdist {
namespace {

TEST(Json, TextsAreEscaped) {
  EXPECT_EQ(json_string("a \"b\" \\ \n\x01 \xc3\xbc"),
            "\"a \\\"b\\\" \\\\ \\u000a\\u0001 \xc3\xbc\"");
}

TEST(Json, ObjectsKeepTheirOrder) {
  const std::string inner = json_array(std::vector<int>{1, -2});
  EXPECT_EQ(
      JsonObject().add("text", "x").add("yes", true).add("count", 3).add_json("list", inner).text(),
      R"({"text":"x","yes":true,"count":3,"list":[1,-2]})");
  EXPECT_EQ(JsonObject().text(), "{}");
  EXPECT_EQ(json_array(std::vector<std::string>()), "[]");
}

}  // namespace
}  // namespace ringdist
