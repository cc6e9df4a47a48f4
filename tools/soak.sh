#!/usr/bin/env bash
# Runs the long random checks one after the other (a night on two cores): tools/soak.sh [NAME ...]
#
# With names, it runs these alone. It continues after a failure, prints a table at the end, and exits
# with 1 if a check has failed. Output with the seeds of failures is in build/soak/NAME.log.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=.venv/bin/python
declare -A checks=(
  [endings]="env RINGDIST_ENDINGS=all $python -m pytest tests/python/test_process_ends.py -q"
  [kills]="env RINGDIST_KILLS=200 $python -m pytest tests/python/test_shared_memory_is_freed.py -q"
  [differential]="make differential"
  [horovod-random]="make horovod-random"
  [membership]="make membership-sim ARGS=--large"
  [mutants]="$python -m tests.membership"
  [chaos]="make chaos"
  [relay]="make relay"
  [wear]="$python -m tests.chaos.wear"
  [conformance]="make conformance"
  [matrix]="make matrix"
)
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  names=(kills endings differential membership mutants chaos relay wear horovod-random conformance matrix)
fi
for name in "${names[@]}"; do
  if [ -z "${checks[$name]:-}" ]; then
    echo "soak: $name: expected one of ${!checks[*]}" >&2
    exit 2
  fi
done

mkdir -p build/soak
table= failed=0
for name in "${names[@]}"; do
  start=$SECONDS result=passed
  echo "$name: ${checks[$name]}"
  ${checks[$name]} >"build/soak/$name.log" 2>&1 || { result="FAILED: build/soak/$name.log" failed=1; }
  table+=$(printf '%-16s %6d s  %s' "$name" $((SECONDS - start)) "$result")$'\n'
done
printf '\n%s' "$table"
exit $failed
