// Writes JSON (RFC 8259). Texts are copied byte by byte, so readers must expect bytes that are no
// UTF-8 in names that users chose.
#pragma once

#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace ringdist {

// Returns a text as a JSON string, with quotes. The result has no line break.
inline std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    if (code >= 0x20) {
      out += c;
      continue;
    }
    std::array<char, 8> escaped{};
    std::snprintf(escaped.data(), escaped.size(), "\\u%04x", code);
    out += escaped.data();
  }
  return out + '"';
}

// Returns a JSON array of values that are JSON already.
inline std::string json_array(const std::vector<std::string>& values) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i) out += (i > 0 ? "," : "") + values[i];
  return out + ']';
}

// Returns a JSON array of numbers.
template <typename T>
  requires std::is_arithmetic_v<T>
std::string json_array(const std::vector<T>& values) {
  std::vector<std::string> texts;
  for (const T value : values) texts.push_back(std::to_string(value));
  return json_array(texts);
}

// A JSON object, to which members are added in order.
class JsonObject {
 public:
  JsonObject& add(std::string_view key, std::string_view text) {
    return add_json(key, json_string(text));
  }
  template <typename T>
    requires std::is_arithmetic_v<T>
  JsonObject& add(std::string_view key, T value) {
    if constexpr (std::is_same_v<T, bool>)
      return add_json(key, value ? "true" : "false");
    else
      return add_json(key, std::to_string(value));
  }
  // Adds a value that is JSON already.
  JsonObject& add_json(std::string_view key, std::string_view json) {
    body_ += (body_.empty() ? "" : ",") + json_string(key) + ":";
    body_ += json;
    return *this;
  }
  std::string text() const { return "{" + body_ + "}"; }

 private:
  std::string body_;
};

}  // namespace ringdist
