#!/usr/bin/env bash
# Runs a command as most users would: without capabilities, and with at most 1024 open descriptors.
# Limits that root does not have (descriptors in flight, say) hold for it.
set -euo pipefail
ulimit -n 1024
if [ "$(id -u)" -ne 0 ]; then exec "$@"; fi
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs -- "$@"
