#!/usr/bin/env bash
# Prepares this checkout for builds: a compiler, .venv, and the packages of requirements.txt.
#
#   tools/bootstrap.sh          everything that building and running needs
#   tools/bootstrap.sh tests    the same, GoogleTest and the headers of OpenSSL
#
# It installs only what is missing, so it can run before every make target. System packages come from
# apt if this user may install them. Otherwise it prints the command for that.
# PYTHON names the interpreter for .venv, and CXX the compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
with_tests=${1:-}

say() { printf 'bootstrap: %s\n' "$*" >&2; }
fail() {
  say "$@"
  exit 1
}

# ---- looking for tools --------------------------------------------------------------------------

compiles() { ${CXX:-c++} -std=c++20 -fsyntax-only -x c++ - >/dev/null 2>&1; }
has_header() { printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" | compiles; }
has_cxx20() { has_header semaphore && has_header source_location; }
has_googletest() { has_header gtest/gtest.h; }
has_openssl() { has_header openssl/ssl.h; }

# python_can INTERPRETER CODE
python_can() { "$1" -c "$2" >/dev/null 2>&1; }
is_new_enough='import sys; sys.exit(sys.version_info < (3, 10))'
has_venv='import ensurepip, venv'
has_headers='import os, sysconfig as s; open(os.path.join(s.get_path("include"), "Python.h"))'

find_python() {
  local candidate
  for candidate in .venv/bin/python ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.10}; do
    if python_can "$candidate" "$is_new_enough"; then
      command -v "$candidate"
      return
    fi
  done
}

# Prints the Debian package python3.x-SUFFIX of an interpreter, if that is one of Debian.
debian_package() {
  "$1" -c 'import sys
if sys.base_prefix != "/usr":
    sys.exit("bootstrap: " + sys.executable + " lacks its " + sys.argv[1] + " part; use another: PYTHON=...")
print("python%d.%d-%s" % (*sys.version_info[:2], sys.argv[1]))' "$2"
}

# Sets `python`, `missing` (descriptions of missing tools) and `packages` (their Debian packages).
look_around() {
  local package
  missing=() packages=()
  lacks() {
    missing+=("$1")
    packages+=("${@:2}")
  }
  command -v make >/dev/null || lacks "make" make
  has_cxx20 || lacks "a C++20 compiler (GCC 11 or newer)" g++
  python=$(find_python)
  if [ -z "$python" ]; then
    lacks "Python 3.10 or newer" python3 python3-venv python3-dev
  else
    if ! python_can "$python" "$has_venv"; then
      package=$(debian_package "$python" venv) || exit 1
      lacks "Python's venv module" "$package"
    fi
    if ! python_can "$python" "$has_headers"; then
      package=$(debian_package "$python" dev) || exit 1
      lacks "Python's headers" "$package"
    fi
  fi
  if [ "$with_tests" = tests ]; then
    has_googletest || lacks "GoogleTest" libgtest-dev
    has_openssl || lacks "OpenSSL's headers" libssl-dev
  fi
}

words() {
  local all
  all=$(printf '%s, ' "${missing[@]}")
  printf '%s' "${all%, }"
}

# ---- installing what is missing -----------------------------------------------------------------

install_packages() {
  local as_root=()
  if ! command -v apt-get >/dev/null; then
    fail "missing: $(words). Install them with this system's package manager and try again."
  fi
  if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      fail "missing: $(words). Type
  sudo apt-get update && sudo apt-get install ${packages[*]}
and try again."
    fi
    as_root=(sudo -n)
  fi
  say "missing: $(words); installing ${packages[*]}"
  "${as_root[@]}" apt-get update -qq || say "apt-get update failed; going on with the lists that are there"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null ||
    fail "apt-get could not install ${packages[*]}."
  look_around
  [ ${#missing[@]} -eq 0 ] || fail "still missing after apt-get: $(words)."
}

make_venv() {
  say "making .venv with $python ($("$python" --version))"
  rm -rf .venv
  if ! "$python" -m venv .venv; then
    rm -rf .venv
    fail "$python could not make .venv."
  fi
}

install_requirements() {
  local wanted
  wanted=$(sha256sum <requirements.txt)
  [ "$(cat .venv/requirements.sha256 2>/dev/null)" != "$wanted" ] || return 0
  say "installing the packages of requirements.txt into .venv"
  .venv/bin/python -m pip install --disable-pip-version-check --no-compile -r requirements.txt ||
    fail "pip could not install requirements.txt into .venv; see above."
  # pip would compile them on one core. Errors are ignored, because some packages bring files that no
  # Python compiles.
  .venv/bin/python -m compileall -qq -j "$(tools/jobs.sh)" -x '/tests?/' .venv/lib || true
  printf '%s\n' "$wanted" >.venv/requirements.sha256
}

[ "$(uname -s)" = Linux ] || fail "torch-ringdist runs on Linux only."
if [ -n "${PYTHON:-}" ] && ! python_can "$PYTHON" "$is_new_enough"; then
  fail "PYTHON=$PYTHON is not a Python 3.10 or newer."
fi
look_around
[ ${#missing[@]} -eq 0 ] || install_packages
python_can .venv/bin/python "$is_new_enough" || make_venv
install_requirements
