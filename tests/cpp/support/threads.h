// The threads of this process, by name.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace ringdist {

// Returns how many threads of this process have a name.
inline int count_threads(const std::string& name) {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string found;
    std::getline(std::ifstream(task.path() / "comm"), found);
    count += found == name ? 1 : 0;
  }
  return count;
}

}  // namespace ringdist
