#!/usr/bin/env bash
# Runs a command like a typical user: without capabilities, and with at most 1024 open descriptors.
# Limits that do not apply to root, such as that of descriptors in flight, apply to the command.
set -euo pipefail
ulimit -n 1024
if [ "$(id -u)" -ne 0 ]; then exec "$@"; fi
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs -- "$@"
