// Where files lie that tests read. Not __FILE__: that may be relative to wherever the compiler ran.
#pragma once

#include <filesystem>

namespace ringdist {

std::filesystem::path source_folder();  // the project's

}  // namespace ringdist
