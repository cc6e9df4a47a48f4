// A listening port for tests of transport `tcp`, which have no control plane.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "os/socket.h"
#include "transport/tcp/data_port.h"

namespace ringdist {

// Accepts connections on a thread and reads their first frame, as the control plane does.
class DataListener {
 public:
  // Listens at 127.0.0.1, and at the following addresses if there shall be several.
  explicit DataListener(int addresses = 1) {
    for (int i = 1; i <= addresses; ++i) {
      sockets_.push_back(std::move(listen_tcp("127.0.0." + std::to_string(i), 0).value()));
      addresses_.push_back(local_address(sockets_.back()).value());
    }
    thread_ = std::thread([this] { run(); });
  }
  ~DataListener() {
    ended_ = true;
    thread_.join();
  }
  DataListener(const DataListener&) = delete;
  DataListener& operator=(const DataListener&) = delete;

  const std::vector<std::string>& addresses() const { return addresses_; }
  const std::shared_ptr<DataPort>& port() const { return port_; }

 private:
  static bool is_readable(const Fd& fd, int milliseconds) {
    pollfd readable{fd.get(), POLLIN, 0};
    return poll(&readable, 1, milliseconds) == 1;
  }
  void run() {
    for (size_t i = 0; !ended_; i = (i + 1) % sockets_.size()) {
      if (!is_readable(sockets_[i], 20)) continue;
      Fd accepted = accept_connection(sockets_[i]);
      const size_t size = DataHello().frame().size();
      std::vector<std::byte> frame(size);
      if (!accepted || !is_readable(accepted, 1000)) continue;
      if (recv(accepted.get(), frame.data(), size, MSG_WAITALL) != static_cast<ssize_t>(size))
        continue;
      port_->adopt(Stream(std::move(accepted)),
                   ConstBytes(frame).subspan(5));  // behind length and type
    }
  }

  std::vector<Fd> sockets_;
  std::vector<std::string> addresses_;
  std::shared_ptr<DataPort> port_ = std::make_shared<DataPort>();
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

}  // namespace ringdist
