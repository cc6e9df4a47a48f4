#!/usr/bin/env bash
# Unpacks Debian's Prometheus into build/prometheus, for `make test-metrics`. It is not installed, so
# no service starts. Needs apt, and root if the lists of packages are missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p build/prometheus
cd build/prometheus
apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }
dpkg -x prometheus_*.deb .
rm prometheus_*.deb
