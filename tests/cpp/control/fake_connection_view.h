// Fake ConnectionView: connections without sockets, and a record of dials. Not thread-safe.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "control/control_connection.h"
#include "control/control_groups.h"

namespace ringdist::test {

inline constexpr uint64_t kMe = 1;  // the process under test
inline constexpr uint64_t kNonce = 77;
inline const TimePoint kStart = TimePoint() + std::chrono::hours(1);

class FakeConnectionView final : public ConnectionView {
 public:
  enum class Link { kNone, kTried, kHeld, kOpen };
  struct Dial {
    LinkKind kind;
    uint64_t peer;
    std::string address;
    uint64_t nonce;
    std::string source;
  };

  std::map<std::pair<uint64_t, LinkKind>, Link> links;
  std::vector<Dial> dials;

  bool is_connecting_or_open(uint64_t peer, LinkKind kind) const override {
    return link(peer, kind) >= Link::kTried;
  }
  bool reached(uint64_t peer, LinkKind kind) const override {
    return link(peer, kind) >= Link::kHeld;
  }
  bool open(uint64_t peer, LinkKind kind) const override { return link(peer, kind) == Link::kOpen; }
  void dial(LinkKind kind, uint64_t peer, const std::string& address, uint64_t nonce,
            const std::string& source) override {
    dials.push_back({kind, peer, address, nonce, source});
  }

 private:
  Link link(uint64_t peer, LinkKind kind) const {
    const auto found = links.find({peer, kind});
    return found == links.end() ? Link::kNone : found->second;
  }
};

// Returns members where rank i is process i + 1 on host host[i].
inline std::vector<ControlMember> processes_on(const std::vector<int>& host) {
  std::vector<ControlMember> out;
  for (size_t i = 0; i < host.size(); ++i) {
    const auto id = static_cast<uint64_t>(i) + 1;
    const std::string text = std::to_string(id);
    out.push_back({static_cast<int>(i), id, host[i], "@" + text, "tcp" + text,
                   static_cast<int>(100 + id), "h" + std::to_string(host[i])});
  }
  return out;
}

}  // namespace ringdist::test
