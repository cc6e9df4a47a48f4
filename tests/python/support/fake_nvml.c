// Fake NVML for tests/python/test_devices.py. It has three devices: 0 and 1 have two links to each
// other, and 2 answers hardly any call. A macro selects another machine:
//   NO_DRIVER  nothing works
//   SWITCHED   the links lead to switches
//   OLD        functions of newer drivers are missing
//   SPLIT      device 0 is split by MIG
#include <stdio.h>
#include <string.h>

enum { kSuccess = 0, kInvalid = 2, kNotSupported = 3, kNoDriver = 9 };

typedef struct {
  char old_address[16];
  unsigned domain, bus, device, ids, sub_ids;
  char address[32];
} PciInfo;

typedef struct {
  unsigned long long total, free, used;
} Memory;

static int devices[3];
static int started = 0;

static int number_of(const void *device) { return (int)((const int *)device - devices); }

static int answer(unsigned *out, unsigned value) {
  *out = value;
  return kSuccess;
}

int nvmlInit_v2(void) {
#ifdef NO_DRIVER
  return kNoDriver;
#endif
  ++started;
  return kSuccess;
}

int nvmlShutdown(void) {
  --started;
  return kSuccess;
}

int fake_started(void) { return started; }

const char *nvmlErrorString(int code) {
  return code == kNoDriver ? "Driver Not Loaded" : "Not Supported";
}

int nvmlSystemGetDriverVersion(char *out, unsigned bytes) {
  snprintf(out, bytes, "580.159.03");
  return kSuccess;
}

int nvmlDeviceGetCount_v2(unsigned *out) { return answer(out, 3); }

int nvmlDeviceGetHandleByIndex_v2(unsigned number, void **out) {
  *out = &devices[number];
  return number < 3 ? kSuccess : kInvalid;
}

int nvmlDeviceGetName(void *device, char *out, unsigned bytes) {
  snprintf(out, bytes, number_of(device) < 2 ? "NVIDIA H100" : "NVIDIA T4");
  return kSuccess;
}

int nvmlDeviceGetUUID(void *device, char *out, unsigned bytes) {
  snprintf(out, bytes, "GPU-%d", number_of(device));
  return kSuccess;
}

static int fill(PciInfo *out, unsigned bus) {
  memset(out, 0xff, sizeof *out);
  out->domain = 0;
  out->bus = bus;
  out->device = 0;
  snprintf(out->address, sizeof out->address, "00000000:%02X:00.0", bus);
  return kSuccess;
}

static unsigned bus_of(int number) { return 0x17u + 0x24u * (unsigned)number; }

int nvmlDeviceGetPciInfo_v3(void *device, PciInfo *out) {
  return fill(out, bus_of(number_of(device)));
}

int nvmlDeviceGetMemoryInfo(void *device, Memory *out) {
  if (number_of(device) == 2) return kNotSupported;
  out->total = 80ull << 30;
  return kSuccess;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
  *major = number_of(device) < 2 ? 9 : 7;
  *minor = number_of(device) < 2 ? 0 : 5;
  return kSuccess;
}

static int pcie(const void *device, unsigned *out, unsigned value) {
  return number_of(device) == 2 ? kNotSupported : answer(out, value);
}

int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *out) {
  return pcie(device, out, number_of(device) == 0 ? 1 : 5);
}
int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *out) { return pcie(device, out, 5); }
int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *out) { return pcie(device, out, 16); }
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *out) { return pcie(device, out, 16); }

// Of 18 links two are up.
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *out) {
  if (number_of(device) == 2) return kNotSupported;
  return link < 18 ? answer(out, link == 0 || link == 3) : kInvalid;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, PciInfo *out) {
  (void)link;
  return fill(out, bus_of(1 - number_of(device)));
}

#ifndef OLD
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later) {
#ifdef SPLIT
  *later = number_of(device) == 0;
#else
  *later = 0;
#endif
  *now = *later;
  return number_of(device) == 2 ? kNotSupported : kSuccess;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, unsigned *out) {
  (void)device;
  (void)link;
#ifdef SWITCHED
  return answer(out, 2);
#else
  return answer(out, 0);
#endif
}
#endif

// All for the pair that has links; 2 is only read by 1, and says nothing of 0.
int nvmlDeviceGetP2PStatus(void *one, void *other, int how, unsigned *out) {
  const int a = number_of(one), b = number_of(other);
  if (a != 2 && b != 2) return answer(out, 0);
  if (a == 0 || b == 0) return kNotSupported;
  return answer(out, how == 0 ? 0 : 5);
}

int nvmlDeviceGetTopologyCommonAncestor(void *one, void *other, unsigned *out) {
  const int a = number_of(one), b = number_of(other);
  if (a != 2 && b != 2) return answer(out, 10);
  return a == 0 || b == 0 ? kNotSupported : answer(out, 50);
}
