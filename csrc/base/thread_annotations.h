// Clang's thread-safety attributes: they declare which lock guards a member, and which locks a
// function requires. Clang checks them at compile time (-Wthread-safety) if std::mutex has such
// attributes, too, which libc++ has on request. Otherwise they are comments.
#pragma once

#if defined(__clang__) && defined(_LIBCPP_ENABLE_THREAD_SAFETY_ANNOTATIONS)
#define RINGDIST_GUARDED_BY(x) __attribute__((guarded_by(x)))
#define RINGDIST_REQUIRES(...) __attribute__((requires_capability(__VA_ARGS__)))
#else
#define RINGDIST_GUARDED_BY(x)
#define RINGDIST_REQUIRES(...)
#endif
