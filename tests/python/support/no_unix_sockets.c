// A system without sockets of AF_UNIX, as some sandboxes are: preloaded into a process.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

int socket(int domain, int type, int protocol) {
  if (domain == AF_UNIX) {
    errno = EPERM;
    return -1;
  }
  int (*real)(int, int, int) = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");
  return real(domain, type, protocol);
}
