#!/usr/bin/env bash
# Runs codecs on inputs that libFuzzer generates, for FUZZ_SECONDS (default: 600), under
# AddressSanitizer and UndefinedBehaviorSanitizer. It needs clang, and installs it from apt if it may.
#
# Inputs that reach new code are added to tests/fuzz/corpus, which `make test` replays. An input that
# fails is written to build/fuzz, and its name is printed. Further arguments go to libFuzzer (-jobs=2, or
# a file to repeat).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/fuzz
corpus=tests/fuzz/corpus
mkdir -p "$build/found"

# Finds a clang that links libFuzzer and supports this system's <source_location>, mostly 16 and newer.
works() {
  printf '#include <source_location>\nauto x = std::source_location::current();\nint main() {}\n' |
    "$1" -std=c++20 -fsanitize=fuzzer-no-link,address -x c++ - -o /dev/null 2>/dev/null
}
find_clang() {
  local candidate
  for candidate in clang++ $(compgen -c clang++- | grep -E '^clang\+\+-[0-9]+$' | sort -ru); do
    if works "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}
newest_package() { apt-cache search --names-only '^clang-[0-9]+$' | cut -d ' ' -f 1 | sort -V | tail -n 1; }

if ! clang=$(find_clang); then
  sudo=()
  [ "$(id -u)" -eq 0 ] || sudo=(sudo -n)
  "${sudo[@]}" apt-get update >"$build/apt.log" 2>&1 || true
  package=$(newest_package)
  packages=("$package" "libclang-rt-${package#clang-}-dev")
  "${sudo[@]}" apt-get install -y --no-install-recommends "${packages[@]}" >>"$build/apt.log" 2>&1 || true
  if ! clang=$(find_clang); then
    echo "fuzz: needs clang 16 or newer with its sanitizers: apt-get install ${packages[*]}" >&2
    exit 1
  fi
fi

# Flags of the project's build, with sanitizers. The last two are the flags of kernels.
flags=(-std=c++20 -O1 -g -ffp-contract=off -iquote csrc -iquote tests/cpp
  -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-math-errno
  -fno-trapping-math)
sources=(csrc/base/*.cc csrc/kernel/*.cc csrc/codec/*.cc tests/cpp/support/decode_any.cc
  tests/fuzz/codec_fuzz.cc)
rm -f "$build"/*.o
compilers=()
jobs=$(tools/jobs.sh)
for source in "${sources[@]}"; do
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do sleep 0.1; done
  "$clang" "${flags[@]}" -c "$source" -o "$build/$(echo "$source" | tr / _).o" &
  compilers+=($!)
done
for compiler in "${compilers[@]}"; do wait "$compiler"; done
"$clang" -fsanitize=fuzzer,address,undefined "$build"/*.o -lpthread -o "$build/codec_fuzz"

"$build/codec_fuzz" -max_total_time="${FUZZ_SECONDS:-600}" -max_len=4096 -timeout=10 \
  -artifact_prefix="$build/" -print_final_stats=1 "$@" "$build/found" "$corpus"
# Keeps only inputs that reach more code than the corpus did.
"$build/codec_fuzz" -set_cover_merge=1 -max_len=4096 "$corpus" "$build/found" 2>&1 | tail -n 1
