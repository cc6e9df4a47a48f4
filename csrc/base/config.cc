#include "base/config.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/hash.h"

namespace ringdist {
namespace {

constexpr std::string_view kPrefix = "RINGDIST_";
// Variables that the build scripts, the launcher and the programs that it launches read.
constexpr std::string_view kReadElsewhere[] = {
    "RINGDIST_BUILD_DIR", "RINGDIST_CUDA",        "RINGDIST_CUDA_ARCHITECTURES",
    "RINGDIST_LINES",     "RINGDIST_RELEASE",     "RINGDIST_WERROR",
    "RINGDIST_RDZV",      "RINGDIST_START_RANKS", "RINGDIST_MIN_RANKS",
    "RINGDIST_MAX_RANKS", "RINGDIST_JOB",         "RINGDIST_EVENTS",
    "RINGDIST_RESUME"};
// Limits of byte counts. UCX sends at most 252 KiB as one fragment.
constexpr int64_t kMinSegment = 4096;
constexpr int64_t kMaxSegment = 252 * 1024;
constexpr double kMaxSeconds = 1e9;  // a Duration holds nine times as much
constexpr int64_t kMinMemory = int64_t{1} << 20;

// Suffixes of byte counts, the largest first.
struct Unit {
  std::string_view suffix;
  int64_t bytes;
};
constexpr std::array<Unit, 3> kUnits = {
    {{"GiB", int64_t{1} << 30}, {"MiB", int64_t{1} << 20}, {"KiB", int64_t{1} << 10}}};

// Parses "4096" or "252KiB". Returns nothing for other texts, negative counts and overflow.
std::optional<int64_t> parse_bytes(std::string_view text) {
  int64_t unit = 1;
  for (const Unit& u : kUnits) {
    if (!text.ends_with(u.suffix)) continue;
    unit = u.bytes;
    text.remove_suffix(u.suffix.size());
    break;
  }
  int64_t count = 0;
  auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (count < 0 || count > INT64_MAX / unit) return std::nullopt;
  return count * unit;
}

std::string format_bytes(int64_t bytes) {
  for (const Unit& u : kUnits)
    if (bytes >= u.bytes && bytes % u.bytes == 0)
      return std::to_string(bytes / u.bytes).append(u.suffix);
  return std::to_string(bytes);
}

// Parses a finite number. It does not depend on the locale.
std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::string format_number(double value) {
  std::array<char, 32> text;
  auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return std::string(text.data(), end);
}

// One setting. parse() stores the value and returns true if the text is accepted.
struct Row {
  std::string_view field;
  std::string_view type;  // same values as Variable::type
  std::string_view meaning;
  std::string_view accepted;
  std::function<bool(Config&, std::string_view)> parse;
  std::function<std::string(const Config&)> format;
  bool empty_is_a_value = false;  // otherwise, an empty text means unset
};

// These functions make rows for members of each type. text_row() accepts any text.
Row text_row(std::string_view field, std::string Config::* member, std::string_view meaning,
             std::string_view accepted) {
  return {field,
          "str",
          meaning,
          accepted,
          [member](Config& c, std::string_view text) {
            c.*member = text;
            return true;
          },
          [member](const Config& c) { return c.*member; },
          true};
}

Row choice_row(std::string_view field, std::string Config::* member, std::string_view meaning,
               std::string_view accepted, std::vector<std::string_view> choices) {
  bool has_empty = std::find(choices.begin(), choices.end(), "") != choices.end();
  return {field,
          "str",
          meaning,
          accepted,
          [member, choices = std::move(choices)](Config& c, std::string_view text) {
            if (std::find(choices.begin(), choices.end(), text) == choices.end()) return false;
            c.*member = text;
            return true;
          },
          [member](const Config& c) { return c.*member; },
          has_empty};
}

Row bytes_row(std::string_view field, int64_t Config::* member, std::string_view meaning,
              std::string_view accepted, int64_t low, int64_t high) {
  return {field,
          "int",
          meaning,
          accepted,
          [=](Config& c, std::string_view text) {
            auto value = parse_bytes(text);
            if (!value || *value < low || *value > high) return false;
            c.*member = *value;
            return true;
          },
          [member](const Config& c) { return format_bytes(c.*member); }};
}

Row seconds_row(std::string_view field, double Config::* member, std::string_view meaning,
                std::string_view accepted, double low) {
  return {field,
          "float",
          meaning,
          accepted,
          [member, low](Config& c, std::string_view text) {
            auto value = parse_number(text);
            if (!value || *value < low) return false;
            c.*member = std::min(*value, kMaxSeconds);
            return true;
          },
          [member](const Config& c) { return format_number(c.*member); }};
}

Row log_level_row() {
  return {"log_level",
          "str",
          "which lines go to stderr",
          "error, warn, info or debug",
          [](Config& c, std::string_view text) {
            auto level = parse_log_level(text);
            if (level) c.log_level = *level;
            return level.has_value();
          },
          [](const Config& c) { return std::string(log_level_name(c.log_level)); }};
}

// Parses "47000" or "47000-47999". Returns nothing for other texts.
std::optional<Config::PortRange> parse_ports(std::string_view text) {
  const auto parse = [](std::string_view part) {
    uint16_t port = 0;
    const auto [end, problem] = std::from_chars(part.data(), part.data() + part.size(), port);
    const bool whole = problem == std::errc() && end == part.data() + part.size();
    return whole ? port : uint16_t{0};
  };
  const size_t dash = text.find('-');
  Config::PortRange out;
  out.first = parse(text.substr(0, dash));
  out.last = dash == std::string_view::npos ? out.first : parse(text.substr(dash + 1));
  if (out.first == 0 || out.last < out.first) return std::nullopt;
  return out;
}

Row port_row() {
  return {"port",
          "str",
          "where this process listens; empty: the kernel chooses",
          "a port, or a range like 47000-47999, of which the first free one is taken",
          [](Config& c, std::string_view text) {
            if (!text.empty() && !parse_ports(text)) return false;
            c.port = text;
            return true;
          },
          [](const Config& c) { return c.port; },
          true};
}

// The value of a file with credentials is shown as "set", since logs need no more.
Row secret_row(std::string_view field, std::string Config::* member, std::string_view meaning,
               std::string_view accepted) {
  Row out = text_row(field, member, meaning, accepted);
  out.format = [member](const Config& c) { return std::string((c.*member).empty() ? "" : "set"); };
  return out;
}

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      text_row("algorithm", &Config::algorithm, "forces this algorithm; empty: chosen per call",
               "a name that `info` lists"),
      bytes_row("segment_bytes", &Config::segment_bytes, "unit of pipelining",
                "bytes from 4096 to 258048 (252KiB); KiB is a unit", kMinSegment, kMaxSegment),
      bytes_row("memory", &Config::memory,
                "limit of the bytes that peers may be granted to send to this process",
                "bytes, at least 1MiB; KiB, MiB and GiB are units", kMinMemory, INT64_MAX),
      seconds_row("peer_timeout", &Config::peer_timeout,
                  "silence after which a process or host counts as lost", "seconds, at least 0.5",
                  0.5),
      text_row("socket_ifname", &Config::socket_ifname,
               "network interfaces to use; empty: the one that routes to the store",
               "comma separated names, name prefixes or networks like 10.0.0.0/8"),
      port_row(),
      secret_row("key_file", &Config::key_file,
                 "the file with the key of the job, by which connections between hosts are "
                 "encrypted; empty: they are not, unless there is a certificate",
                 "a file that `python -m torch_ringdist key new` wrote"),
      secret_row("cert", &Config::cert,
                 "the file with the certificate of this process, in place of a key of the job",
                 "a file that `python -m torch_ringdist key sign` wrote, in PEM form"),
      secret_row("cert_key", &Config::cert_key, "the file with the private key of the certificate",
                 "a file that `python -m torch_ringdist key request` wrote, in PEM form"),
      secret_row(
          "ca", &Config::ca,
          "the file with the certificate of the authority that has signed those of all ranks",
          "the ca.pem that `python -m torch_ringdist key ca` wrote, in PEM form"),
      choice_row("deterministic", &Config::deterministic,
                 "run: same call, same bits; layout: also wherever an element lies",
                 "\"\", \"run\" or \"layout\"", {"", "run", "layout"}),
      text_row(
          "transport", &Config::transport,
          "the transports to choose from; the first that `info` lists and that reaches a peer is "
          "used",
          "names that `info` lists, separated by commas, as shm,tcp"),
      choice_row(
          "device_path", &Config::device_path,
          "how tensors on devices travel, by NCCL or by way of the host; empty: by NCCL where "
          "all ranks have it and a device of their own",
          "\"\", \"nccl\" or \"host\"", {"", "nccl", "host"}),
      choice_row("ucx", &Config::ucx, "which UCX is loaded", "\"wheel\" or \"system\"",
                 {"wheel", "system"}),
      text_row("codec", &Config::codec,
               "compresses float all_reduce and reduce_scatter (SUM, AVG) of 1024 elements or more",
               "a codec that `info` lists, as int8, topk:0.01 or topk:10>int4"),
      text_row("costs", &Config::costs,
               "the file of constants by which algorithms are chosen; empty: built in",
               "a file that `python -m torch_ringdist tune` wrote; rank 0's counts for all"),
      log_level_row(),
      choice_row("log_format", &Config::log_format, "the form of these lines",
                 "\"text\" or \"json\"", {"text", "json"}),
      bytes_row("nan_check", &Config::nan_check,
                "1: an operation whose input on a rank has a NaN fails, and names rank and element",
                "0 or 1", 0, 1),
      seconds_row("warn_after", &Config::warn_after,
                  "a warning says for whom an operation has waited this long; 0: never",
                  "seconds, at least 0", 0),
      seconds_row("destroy_grace", &Config::destroy_grace,
                  "how long destroy_process_group() waits for receives, and, while an exception is "
                  "handled, for all operations",
                  "seconds, at least 0", 0),
  };
  return table;
}

const Row* find_row(std::string_view field) {
  for (const Row& row : rows())
    if (row.field == field) return &row;
  return nullptr;
}

std::string variable_name(std::string_view field) {
  std::string name(kPrefix);
  for (char c : field) name.push_back(c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c);
  return name;
}

std::string field_list() {
  std::string list;
  for (const Row& row : rows()) list.append(list.empty() ? "" : ", ").append(row.field);
  return list;
}

// Returns the error for a text that a row does not accept. `name` is that of the variable, or of
// the option.
Error rejected(std::string_view name, std::string_view given, std::string_view accepted) {
  return Error(ErrorKind::kInvalidArgument,
               std::string(name) + "=\"" + std::string(given) +
                   "\" is not valid; accepted: " + std::string(accepted));
}

// Reads all variables with the prefix from `environ`.
std::map<std::string, std::string> read_environment() {
  std::map<std::string, std::string> out;
  for (char** entry = environ; entry && *entry; ++entry) {
    std::string_view text(*entry);
    auto equals = text.find('=');
    if (!text.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

// Warns about variables without a reader. Every group reads the environment; one warning per
// process is enough.
void warn_once_about(const std::vector<std::string>& unknown) {
  static std::once_flag warned;
  if (unknown.empty()) return;
  std::call_once(warned, [&] {
    std::string text = "these environment variables are set but nothing reads them:";
    for (const std::string& name : unknown) text.append(" ").append(name);
    log(LogLevel::kWarn, text + " (fields: " + field_list() + ")");
  });
}

}  // namespace

// Reads the variables first, so that overrides win. An empty variable counts as unset in most rows;
// an empty override is parsed like any other text.
Result<Config> Config::parse(const std::map<std::string, std::string>& environment,
                             const std::map<std::string, std::string>& overrides) {
  Config out;
  for (const Row& row : rows()) {
    std::string name = variable_name(row.field);
    auto given = environment.find(name);
    if (given == environment.end()) continue;
    if (given->second.empty() && !row.empty_is_a_value) continue;
    if (!row.parse(out, given->second)) return rejected(name, given->second, row.accepted);
    out.sources_[std::string(row.field)] = "environment";
  }
  for (const auto& [field, text] : overrides) {
    const Row* row = find_row(field);
    if (!row)
      return Error(ErrorKind::kInvalidArgument,
                   "unknown option \"" + field + "\"; options are: " + field_list());
    if (!row->parse(out, text)) return rejected("option " + field, text, row->accepted);
    out.sources_[field] = "option";
  }
  for (const auto& [name, text] : environment) {
    bool ours = std::any_of(rows().begin(), rows().end(),
                            [&](const Row& row) { return variable_name(row.field) == name; });
    const bool elsewhere = std::ranges::find(kReadElsewhere, name) != std::end(kReadElsewhere);
    if (!ours && !elsewhere && name.starts_with(kPrefix)) out.unknown_.push_back(name);
  }
  return out;
}

Config::PortRange Config::ports() const { return parse_ports(port).value_or(PortRange()); }

Error Config::reject(std::string_view field, std::string_view accepted) const {
  const Row* row = find_row(field);
  check(row != nullptr, "a field that is none");
  const auto source = sources_.find(std::string(field));
  const bool by_environment = source != sources_.end() && source->second == "environment";
  return rejected(by_environment ? variable_name(field) : "option " + std::string(field),
                  row->format(*this), accepted);
}

Result<Config> Config::from_environment(const std::map<std::string, std::string>& overrides) {
  Result<Config> out = parse(read_environment(), overrides);
  if (out.ok()) warn_once_about(out.value().unknown_);
  return out;
}

std::vector<Config::Variable> Config::variables() const {
  const Config defaults;
  std::vector<Variable> out;
  for (const Row& row : rows()) {
    std::string field(row.field);
    auto source = sources_.find(field);
    bool set = source != sources_.end();
    out.push_back({variable_name(row.field), field, std::string(row.type), row.format(*this),
                   row.format(defaults), std::string(row.meaning), std::string(row.accepted),
                   set ? source->second : "default", set});
  }
  return out;
}

std::string Config::options_text() const {
  return "algorithm=\"" + algorithm + "\" segment_bytes=" + std::to_string(segment_bytes) +
         " deterministic=\"" + deterministic + "\" codec=\"" + codec + "\" transport=\"" +
         transport + "\" device_path=\"" + device_path + "\"";
}

std::string_view TlsFiles::encrypted_by() const {
  if (!key_file.empty()) return "RINGDIST_KEY_FILE";
  if (!cert.empty()) return "RINGDIST_CERT";
  return !cert_key.empty() ? "RINGDIST_CERT_KEY" : !ca.empty() ? "RINGDIST_CA" : "";
}

uint64_t Config::options_hash() const { return Hash().add(options_text()).value(); }

}  // namespace ringdist
