// Transport `ucx` sends active messages over UCX. It has one worker per lane and one endpoint per
// peer, in error mode PEER.
//
// Messages are always eager and in one fragment (256 KiB TCP segments). That is 1.5x the rate of
// two fragments, and payloads can be reduced straight out of UCX's memory. Put and stream are never
// used over TCP (measured: they collapse). Receives never name user memory, so draining after an
// abort cannot write to a tensor.
//
// Threads: see Transport. peers_mutex_ is a leaf and is never held in UCX calls.
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

// The transport of one lane. UCX's callbacks run inside calls that require the lane's progress
// lock, above all progress(), and close(), which waits for UCX.
class UcxTransport final : public Transport {
 public:
  // Opens a worker and installs the message handlers. `receiver` must outlive the transport.
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
  // A peer with an address, from add_peer() to the end of the transport.
  struct Peer {
    UcxTransport* transport;
    ContextId id;
    std::vector<std::byte> address;
    ucp_ep_h endpoint = nullptr;
    // The cause, if the connection is broken. Written under the mutex, because reaches() reads it.
    Error broken;
    bool over = false;       // broken, reported, and its endpoint is closed
    bool gone = false;       // drop_peer() was called: no other endpoint follows
    uint64_t asked = 0;      // number of the last flush request sent to it
    uint64_t confirmed = 0;  // number of the last one that it confirmed
    TimePoint silent_since;  // while a confirmation is missing
  };
  // The header of a flush request and of its confirmation, which repeats it.
  struct FlushRequest {
    ContextId peer;  // the peer that is to confirm
    uint64_t number;
  };
  // A send in UCX. Requests are reused and live as long as the transport.
  struct Request {
    UcxTransport* transport;
    bool in_use = false;
    SendId send_id = kNoSendId;
    ucp_ep_h endpoint = nullptr;
    const std::byte* staged = nullptr;  // the reservation that holds the payload, or null
    std::array<std::byte, kMaxHeaderBytes> header;  // UCX reads it until completion
  };

  UcxTransport(const TransportConfig& config, TransportDelegate& receiver);
  Error install_handler(unsigned id, ucp_am_recv_callback_t callback);
  // Returns the endpoint of a peer; connects if there is none. Returns the cause if the peer is
  // broken.
  Result<ucp_ep_h> endpoint(ContextId id);
  Error connect(Peer& peer);
  // Closes the endpoint by force, which needs no answer of the peer. UCX then ends the sends of the
  // endpoint with an error. Must not be called from UCX's callbacks.
  void close_endpoint(Peer& peer);
  // Closes the endpoint of a peer that is gone, once UCX has no data left for it, or reports an
  // error. Until then UCX may read the memory of its sends.
  void close_after_flush(Peer& peer);
  // Posts an active message of that handler `id`. finish() is called when it ends, possibly at
  // once.
  void post(ucp_ep_h endpoint, unsigned id, unsigned flags, ConstBytes header, ConstBytes payload,
            SendId send_id, const std::byte* staged);
  // Connects if necessary and posts the message. If that fails, ends the send with the error.
  void send_from(const OutgoingMessage& to, ConstBytes payload, const std::byte* staged);
  // Returns an unused request with a copy of the header. A header above kMaxHeaderBytes fails a
  // check.
  Request* take_request(ConstBytes header);
  // Recycles the request and ends its send.
  void finish(Request* request, const Error& error);
  // Releases the staged memory, if any, and reports the end of the send.
  void end(SendId send_id, const std::byte* staged, const Error& error);
  // Closes broken endpoints, and flushed ones of close_after_flush(). Reports peers that were not
  // dropped. Returns true if there was one.
  bool handle_broken();
  void send_flush(ucp_ep_h endpoint, unsigned id, const FlushRequest& flush);

  static void on_sent(void* ucx_request, ucs_status_t status, void* user_data);
  static void on_endpoint_error(void* arg, ucp_ep_h endpoint, ucs_status_t status);
  static ucs_status_t on_message(void* arg, const void* header, size_t header_length, void* data,
                                 size_t length, const ucp_am_recv_param_t* param);
  static ucs_status_t on_flush_request(void* arg, const void* header, size_t header_length,
                                       void* data, size_t length, const ucp_am_recv_param_t* param);
  static ucs_status_t on_receipt(void* arg, const void* header, size_t header_length, void* data,
                                 size_t length, const ucp_am_recv_param_t* param);

  const size_t max_payload_;
  TransportDelegate& receiver_;
  std::unique_ptr<UcxWorker> worker_;
  StagingPool staging_;
  mutable std::mutex peers_mutex_;  // a leaf: add_peer() is called by bootstrap threads
  std::map<ContextId, std::unique_ptr<Peer>> peers_ RINGDIST_GUARDED_BY(peers_mutex_);
  std::deque<Peer*> to_close_;            // broken or flushed; they wait for handle_broken()
  std::map<ContextId, TimePoint> ended_;  // time of the first drained() call, by peer
  TimePoint last_empty_;                  // time of the last progress() that found nothing
  std::vector<std::unique_ptr<Request>> requests_;  // all that exist
  std::vector<Request*> free_requests_;
  size_t closing_endpoints_ = 0;  // UCX has yet to report that they are closed
};

}  // namespace ringdist
