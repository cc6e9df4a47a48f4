// Transport `ucx`: active messages over UCX. One worker per lane, one endpoint per peer, error mode
// PEER. Always eager and in one fragment (256 KiB TCP segments): that is 1.5x the rate of two
// fragments, and what arrives can be reduced straight out of UCX's memory. Never put or stream over
// TCP (measured: they collapse). Receives never name user memory, so that draining after an abort
// cannot write to a tensor.
#pragma once

#include <ucp/api/ucp.h>

#include <deque>
#include <map>
#include <mutex>

#include "base/thread_annotations.h"
#include "transport/staging_pool.h"
#include "transport/transport.h"
#include "transport/ucx/ucx_worker.h"

namespace ringdist {

class UcxTransport final : public Transport {
 public:
  static Result<std::unique_ptr<Transport>> create(const TransportConfig& config,
                                                   TransportDelegate& receiver);
  ~UcxTransport() override;

  std::string_view name() const override { return "ucx"; }
  size_t max_payload() const override { return max_payload_; }
  std::vector<std::byte> address() const override { return worker_->address(); }
  Error add_peer(ContextId peer, ConstBytes address) override;
  bool reaches(ContextId peer) const override;
  void renew(ContextId peer) override;
  void send(ContextId peer, ConstBytes header, ConstBytes payload, SendId send_id) override;
  std::optional<Bytes> reserve(size_t bytes) override { return staging_.take(bytes); }
  void commit(Bytes reserved, size_t used, std::span<const OutgoingMessage> to) override;
  bool progress() override;
  int event_fd() const override { return worker_->event_fd(); }
  bool arm() override;
  bool drained(ContextId peer) override;
  void drop_peer(ContextId peer) override;
  void begin_flush() override;
  bool flushed() const override;
  void close() override;

 private:
  struct Peer {
    UcxTransport* transport;
    ContextId id;
    std::vector<std::byte> address;
    ucp_ep_h endpoint = nullptr;
    Error broken;
    bool over = false;       // broken, reported, and its endpoint is closed
    bool gone = false;       // its process: no other endpoint follows
    uint64_t asked = 0;      // how often it was asked to confirm what it got
    uint64_t confirmed = 0;  // the last of these that it answered
    TimePoint silent_since;  // while it has not answered all
  };
  // The header of a question and of its answer, which is the same.
  struct Receipt {
    ContextId peer;  // who is asked
    uint64_t number;
  };
  struct Request {
    UcxTransport* transport;
    bool in_use = false;
    SendId send_id = kNoSendId;
    const std::byte* staged = nullptr;              // a reservation's memory
    std::array<std::byte, kMaxHeaderBytes> header;  // UCX reads it until completion
  };

  UcxTransport(const TransportConfig& config, TransportDelegate& receiver);
  Error install_handler(unsigned id, ucp_am_recv_callback_t callback);
  Result<ucp_ep_h> endpoint(ContextId id);
  Error connect(Peer& peer);
  void close_endpoint(Peer& peer);
  void post(ucp_ep_h endpoint, unsigned id, unsigned flags, ConstBytes header, ConstBytes payload,
            SendId send_id, const std::byte* staged);
  void send_from(const OutgoingMessage& to, ConstBytes payload, const std::byte* staged);
  Request* take_request(ConstBytes header);
  void finish(Request* request, const Error& error);
  void end(SendId send_id, const std::byte* staged, const Error& error);
  bool handle_broken();
  void send_receipt(ucp_ep_h endpoint, unsigned id, const Receipt& receipt);

  static void on_sent(void* ucx_request, ucs_status_t status, void* user_data);
  static void on_endpoint_error(void* arg, ucp_ep_h endpoint, ucs_status_t status);
  static ucs_status_t on_message(void* arg, const void* header, size_t header_length, void* data,
                                 size_t length, const ucp_am_recv_param_t* param);
  static ucs_status_t on_question(void* arg, const void* header, size_t header_length, void* data,
                                  size_t length, const ucp_am_recv_param_t* param);
  static ucs_status_t on_receipt(void* arg, const void* header, size_t header_length, void* data,
                                 size_t length, const ucp_am_recv_param_t* param);

  const size_t max_payload_;
  TransportDelegate& receiver_;
  std::unique_ptr<UcxWorker> worker_;
  StagingPool staging_;
  mutable std::mutex peers_mutex_;  // add_peer() comes from set-up threads; never held in UCX calls
  std::map<ContextId, std::unique_ptr<Peer>> peers_ RINGDIST_GUARDED_BY(peers_mutex_);
  std::deque<Peer*> newly_broken_;
  std::map<ContextId, TimePoint> ended_;  // since when drained() is asked about it
  TimePoint last_empty_;                  // when progress() last found nothing, while it is
  std::vector<std::unique_ptr<Request>> requests_;  // all that were made
  std::vector<Request*> free_requests_;
  size_t closing_endpoints_ = 0;
};

}  // namespace ringdist
