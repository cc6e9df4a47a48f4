// Simulates a system that cannot create another thread.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

namespace ringdist {

// While this object exists, thread creation fails because no memory is left for a stack.
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
