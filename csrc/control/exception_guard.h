// What is thrown on the control thread - there is no memory, say - ends what it was about, and the
// thread goes on. Control thread only.
#pragma once

namespace ringdist {

class ExceptionGuard {
 public:
  // Runs it; false if it threw. What was thrown is logged, but once only until a turn goes well:
  // what cannot be done now is tried again in each turn.
  template <typename Body>
  bool operator()(const char* what, Body&& body) {
    try {
      body();
      return true;
    } catch (...) {
      caught(what);
      return false;
    }
  }
  void begin_turn();
  // In this turn something threw.
  bool failed() const { return failed_; }

 private:
  void caught(const char* what) noexcept;

  bool failed_ = false;  // in this turn
  bool warned_ = false;
};

}  // namespace ringdist
