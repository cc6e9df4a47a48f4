// Messages between a RemoteStore and a HostedStore: frames of the control plane's format
// (control/control_frames.h). A connection begins with a hello. Then each request has one answer,
// and the next request comes after it. Encoding and decoding only; any bytes end in a value or in
// nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/buffers.h"

namespace ringdist {

// Limit of the body of a request and of an answer, in bytes.
inline constexpr size_t kMaxStoreMessage = size_t{16} << 20;
// Limits of a value, in bytes, and of the keys of a request.
inline constexpr size_t kMaxStoreValue = size_t{8} << 20;
inline constexpr size_t kMaxStoreKeys = size_t{1} << 16;

// Requests, with what they need of the fields of StoreRequest, and their answers.
enum class StoreOp : uint8_t {
  kHello = 0,       // `number` is the version of this format. Only a refusal is answered
  kSet = 1,         // a key and its value
  kGet = 2,         // keys. Answer: values, or kMissing
  kAdd = 3,         // a key; `number` is the amount. Answer: `number` is the sum
  kCompareSet = 4,  // a key, the expected and the desired value. Answer: the value afterwards
  kAppend = 5,      // a key, and bytes that are added to its value
  kRemove = 6,      // a key. Answer: `number` is 1 if it was there
  kCheck = 7,       // keys. Answer: `number` is 1 if all are there
  kCount = 8,       // Answer: `number` is the number of keys
  kWait = 9,  // keys; `number` is a limit in ms. Answer: kDone when all are there, or kTimeout
};

struct StoreRequest {
  static constexpr int64_t kVersion = 1;

  StoreOp op = StoreOp::kHello;
  int64_t number = 0;
  std::vector<std::string> keys{};
  std::vector<std::vector<std::byte>> values{};

  std::vector<std::byte> frame() const;
  static std::optional<StoreRequest> decode(ConstBytes body);
};

struct StoreAnswer {
  enum class Status : uint8_t { kDone = 0, kMissing = 1, kTimeout = 2, kRefused = 3 };

  Status status = Status::kDone;
  int64_t number = 0;
  std::string text{};  // why the request is refused
  std::vector<std::vector<std::byte>> values{};

  std::vector<std::byte> frame() const;
  static std::optional<StoreAnswer> decode(ConstBytes body);
};

}  // namespace ringdist
