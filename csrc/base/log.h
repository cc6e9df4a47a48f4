// Log lines on stderr: "[ringdist HOST:PID] LEVEL: TEXT", or a JSON object with the members time
// (UTC, RFC 3339), host, pid, level and text, which is cut to fit into 4096 bytes. A line of up to
// 4096 bytes is one write(2), so that lines of several ranks do not mix. A line is dropped if
// stderr cannot take it at once. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ringdist {

// Severity, the most severe first.
enum class LogLevel : uint8_t { kError, kWarn, kInfo, kDebug };

std::string_view log_level_name(LogLevel level);
// Returns nothing if `name` is not "error", "warn", "info" or "debug".
std::optional<LogLevel> parse_log_level(std::string_view name);

// Drops lines above this level from here on. The level is kWarn until it is set. It is
// process-wide, because some code that logs has no object that could hold it.
void set_log_level(LogLevel level);
// Sets if lines are JSON from here on, for the same reason.
void set_log_json(bool is_json);

// Returns "[ringdist HOST:PID]".
std::string log_prefix();

// Writes one line. It polls stderr first, so a line of at most 4096 bytes does not block unless
// another process fills stderr in between. A longer one may block on a pipe, because poll(2)
// promises no more space. Throws std::bad_alloc. `text` has no newline at its end.
void log(LogLevel level, std::string_view text);

}  // namespace ringdist
