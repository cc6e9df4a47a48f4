// Clang's thread-safety attributes: they declare which lock guards a member, and which locks a
// function requires. Clang checks them at compile time; other compilers ignore them.
#pragma once

#if defined(__clang__)
#define RINGDIST_GUARDED_BY(x) __attribute__((guarded_by(x)))
#define RINGDIST_REQUIRES(...) __attribute__((requires_capability(__VA_ARGS__)))
#else
#define RINGDIST_GUARDED_BY(x)
#define RINGDIST_REQUIRES(...)
#endif
