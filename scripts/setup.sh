#!/bin/sh
# Sets up everything that the project needs: .venv with the packages of requirements.lock, the project itself, and Java.
# Safe to run again: it keeps what already exists. PYTHON names another interpreter for .venv.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*"; }
fail() { say "setup: $*" >&2; exit 1; }

# Runs a command as root: directly if the user is root, else through sudo if that asks for no password; else fails.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; return; fi
  command -v sudo >/dev/null && sudo -n true 2>/dev/null && sudo -n env DEBIAN_FRONTEND=noninteractive "$@"
}

can_be_root() { as_root true 2>/dev/null; }

apt_install() {
  export DEBIAN_FRONTEND=noninteractive
  as_root apt-get update -qq && as_root apt-get install -y -qq --no-install-recommends "$@" </dev/null
}

# --- Python ---------------------------------------------------------------------------------------------------------

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# Prints python3 if it is new enough, else the newest other Python. Runs each: a version manager's stub may not work.
find_python() {
  for python in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    if command -v "$python" >/dev/null && new_enough "$python"; then say "$python"; return; fi
  done
  return 1
}

make_venv() {
  if [ -x .venv/bin/python ] && new_enough .venv/bin/python && .venv/bin/python -m pip --version >/dev/null 2>&1
  then return; fi
  python=$(find_python) || fail "Python 3.11 or newer is needed; install it, or name one: make setup PYTHON=..."
  say "setup: .venv with $("$python" --version)"
  "$python" -m venv --clear .venv >/dev/null 2>&1 && return
  # Debian has a separate package for the pip of the venv module.
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  if command -v apt-get >/dev/null && can_be_root && apt_install "python$version-venv" >/dev/null; then
    "$python" -m venv --clear .venv >/dev/null 2>&1 && return
  fi
  fail "$python cannot make virtual environments; install its venv module (Debian: python$version-venv)"
}

install_packages() {
  say "setup: packages from requirements.lock"
  pip=".venv/bin/python -m pip --disable-pip-version-check --no-input"
  # Every package is pinned and checked against its hash. The project is installed last, with the pinned build backend.
  # Most modules are never used, and compiling them all takes a third of the time: see compile_modules.
  $pip install --quiet --no-compile --require-hashes -r requirements.lock
  $pip install --quiet --no-deps --no-build-isolation --editable .
}

# Compiles what most programs here import. Python does so at first use, but not with PYTHONDONTWRITEBYTECODE: then
# every process, each worker too, would compile it for itself, for up to three seconds.
compile_modules() {
  PYTHONDONTWRITEBYTECODE='' .venv/bin/python - <<'END'
import compileall
from importlib import import_module

for name in """
  watersmeet.runtime.worker_libraries watersmeet.runtime.fork_server watersmeet.session.session
  watersmeet.cli.run watersmeet.cli.shell watersmeet.cli.test watersmeet.demo.job
  pyspark.sql.streaming.transform_with_state_driver_worker pytest hypothesis
""".split():
    import_module(name)
compileall.compile_dir("src", quiet=1)
END
}

# --- Java -----------------------------------------------------------------------------------------------------------

install_java() {
  if command -v apt-get >/dev/null && can_be_root; then
    # Some releases of Debian and Ubuntu do not have Java 17.
    apt_install openjdk-17-jre-headless || apt_install openjdk-21-jre-headless || apt_install default-jre-headless
  elif command -v dnf >/dev/null && can_be_root; then
    as_root dnf install -y -q java-17-openjdk-headless || as_root dnf install -y -q java-21-openjdk-headless
  elif command -v brew >/dev/null; then
    brew install --quiet openjdk@17
  else
    return 1
  fi
}

ensure_java() {
  if ! sh scripts/java-home.sh >/dev/null; then
    say "setup: Java 17"
    install_java >/dev/null || true
  fi
  home=$(sh scripts/java-home.sh) || fail "Java 17 or newer is needed and could not be installed from here;" \
    "install a JRE, put its java on PATH or set JAVA_HOME, and run this again"
  say "setup: Java in $home"
}

ensure_java
make_venv
install_packages
compile_modules
say "setup: done"
