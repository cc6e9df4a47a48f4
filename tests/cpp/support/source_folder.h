// Location of the files that tests read. __FILE__ does not serve, because it may be relative to
// the working directory of the compiler.
#pragma once

#include <filesystem>

namespace ringdist {

std::filesystem::path source_folder();  // root folder of the project

}  // namespace ringdist
