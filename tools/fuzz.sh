#!/usr/bin/env bash
# Gives inputs that libFuzzer generates to code that reads bytes of other processes, under
# AddressSanitizer and UndefinedBehaviorSanitizer: tools/fuzz.sh [TARGET...] [ARGUMENT...]
#
# Each target, by default each of all, runs for FUZZ_SECONDS (default: 600). Arguments that name no
# target go to libFuzzer, such as -jobs=2. A file is given to the target instead of generated inputs.
#
# Inputs that reach new code are added to tests/fuzz/corpus/TARGET, which `make test` replays. An input
# that fails is written to build/fuzz, and its name is printed. At the end llvm-cov prints which part of
# a target's files its corpus reaches, and the other lines. It needs clang, and installs it from apt if it
# may.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/fuzz
program=$build/out/fuzz
all=()
for source in tests/cpp/fuzz/*.cc; do
  name=$(basename "$source" .cc)
  [[ $name == *_test ]] || all+=("$name")
done
targets=() files=() arguments=()
for argument in "$@"; do
  if [[ $argument == --help || $argument == -h ]]; then
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
    printf '\nTargets: %s\n' "${all[*]}"
    exit
  elif [[ " ${all[*]} " == *" $argument "* ]]; then
    targets+=("$argument")
  elif [ -f "$argument" ]; then
    files+=("$argument")
  elif [[ $argument == -* ]]; then
    arguments+=("$argument")
  else
    echo "fuzz: '$argument' is no target, file or argument of libFuzzer; targets: ${all[*]}" >&2
    exit 1
  fi
done
[ ${#targets[@]} -gt 0 ] || targets=("${all[@]}")

mkdir -p "$build"
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
  packages=("$package" "libclang-rt-${package#clang-}-dev" "llvm-${package#clang-}")
  "${sudo[@]}" apt-get install -y --no-install-recommends "${packages[@]}" >>"$build/apt.log" 2>&1 || true
  if ! clang=$(find_clang); then
    echo "fuzz: needs clang 16 or newer with its sanitizers: apt-get install ${packages[*]}" >&2
    exit 1
  fi
fi
llvm=$(dirname "$(readlink -f "$clang")")

export PATH="$PWD/.venv/bin:$PATH"
if [ ! -f "$build/build.ninja" ]; then
  cmake -S . -B "$build" -G Ninja -DPython_EXECUTABLE="$(command -v python)" -DSANITIZE=fuzz \
    -DCMAKE_CXX_COMPILER="$clang" -DRINGDIST_UCX="${RINGDIST_UCX:-wheel}"
fi
cmake --build "$build" --target fuzz --parallel "$(tools/jobs.sh)"

# Prints the part of each file that the corpus reaches, then the lines that it does not.
print_coverage() {
  local sources profile=$build/$1.profile
  if [ ! -x "$llvm/llvm-cov" ]; then
    echo "fuzz: no llvm-cov beside $clang: no coverage is printed"
    return
  fi
  LLVM_PROFILE_FILE=$profile.raw "$program" -runs=0 "tests/fuzz/corpus/$1" 2>/dev/null
  "$llvm/llvm-profdata" merge -sparse "$profile.raw" -o "$profile"
  mapfile -t sources < <(git ls-files csrc | grep -E "^$(env -u FUZZ_TARGET "$program" |
    sed -n "s/^$1 //p").*\.(cc|h)$" | sed "s,^,$PWD/,")
  "$llvm/llvm-cov" export -format=lcov -instr-profile="$profile" "$program" "${sources[@]}" |
    awk -F '[:,]' -v root="$PWD/" '
      /^SF:/ { file = substr($0, 4); sub(root, "", file); lines = reached = 0; missing = "" }
      /^DA:/ { ++lines; if ($3 > 0) ++reached; else missing = missing " " $2 }
      /^end_of_record/ && lines {
        printf "%3d %% of %4d lines: %s\n", 100 * reached / lines, lines, file
        if (missing) print "      not reached:" missing
      }'
}

for target in "${targets[@]}"; do
  export FUZZ_TARGET=$target LLVM_PROFILE_FILE=/dev/null
  echo "fuzz: $target"
  if [ ${#files[@]} -gt 0 ]; then
    "$program" "${arguments[@]}" "${files[@]}"
    continue
  fi
  corpus=tests/fuzz/corpus/$target
  found=$build/found/$target
  mkdir -p "$corpus" "$found"
  FUZZ_SEEDS=$found "$program" -max_total_time="${FUZZ_SECONDS:-600}" -max_len=4096 -timeout=10 \
    -rss_limit_mb=1024 -artifact_prefix="$build/$target-" -print_final_stats=1 "${arguments[@]}" \
    "$found" "$corpus"
  # Keeps only inputs that reach more code than the corpus did.
  "$program" -set_cover_merge=1 -use_counters=0 -max_len=4096 "$corpus" "$found" 2>&1 | tail -n 1
  print_coverage "$target"
done
