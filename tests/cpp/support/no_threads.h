// A system that has no thread left.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

namespace ringdist {

// While it lives the system has no memory for the stack of another thread.
class NoThreads {
 public:
  NoThreads() {
    pthread_attr_t attributes;
    pthread_getattr_default_np(&attributes);
    pthread_attr_getstacksize(&attributes, &before_);
    set(size_t{1} << 46);
    pthread_attr_destroy(&attributes);
  }
  ~NoThreads() { set(before_); }

 private:
  static void set(size_t bytes) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, bytes);
    EXPECT_EQ(pthread_setattr_default_np(&attributes), 0);
    pthread_attr_destroy(&attributes);
  }
  size_t before_ = 0;
};

}  // namespace ringdist
