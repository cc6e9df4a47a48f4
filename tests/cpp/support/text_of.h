#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace ringdist {

// Of a whole file; empty if there is none.
inline std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace ringdist
