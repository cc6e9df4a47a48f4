// Speaking on connections: what those who pass news on, settle needs and say goodbye take of
// ConnectionManager.
#pragma once

#include <functional>

#include "control/control_connection.h"

namespace ringdist {

class ConnectionSender {
 public:
  virtual ~ConnectionSender() = default;
  // All that are not closed.
  virtual void for_each(const std::function<void(ControlConnection&)>& fn) = 0;

  virtual void send(ControlConnection& connection, ConstBytes frame) = 0;
  // On all that are open.
  virtual void send_to_all(ConstBytes frame, const ControlConnection* except = nullptr) = 0;
  // The other side sees that nothing follows; not yet where something has still to be sent.
  virtual void end_output(ControlConnection& connection) = 0;
  virtual void close(ControlConnection& connection) = 0;
  virtual void close_after_output(ControlConnection& connection) = 0;
  virtual void stop_listening() = 0;
};

}  // namespace ringdist
