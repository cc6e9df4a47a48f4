// Lines to stderr: "[ringdist pid] level: text", one write(2) each so that ranks do not mix;
// dropped while nobody takes them. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ringdist {

enum class LogLevel : uint8_t { kError, kWarn, kInfo, kDebug };

std::string_view log_level_name(LogLevel level);
std::optional<LogLevel> parse_log_level(std::string_view name);

// Lines above this level are dropped. Process-wide, because lines come from places that hold no
// object of ours; kWarn until set.
void set_log_level(LogLevel level);

void log(LogLevel level, std::string_view text);

}  // namespace ringdist
