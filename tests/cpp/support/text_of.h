#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace ringdist {

// Returns the content of a file, or "" if it cannot be read.
inline std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace ringdist
