# shellcheck shell=bash
# Shared by the scripts beside it; sourced, never run.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export ROOT

# Progress goes to stderr, so that a script's stdout stays its result.
say() { printf '%s\n' "$*" >&2; }

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# The comment block below the first line of the calling script is its --help.
show_help() {
  awk 'NR == 1 { next } /^#/ { sub(/^# ?/, ""); print; next } { exit }' "$0"
}

# Jobs for a build: one a core, and no more than memory allows, since the largest translation units need about
# 1.5 GiB each under a sanitizer. WEIGHTBUS_JOBS overrides.
build_jobs() {
  if [[ -n "${WEIGHTBUS_JOBS:-}" ]]; then
    printf '%s\n' "$WEIGHTBUS_JOBS"
    return
  fi
  local cores by_memory
  cores="$(nproc)"
  by_memory="$(awk '/^MemAvailable:/ { print int($2 / (1536 * 1024)) }' /proc/meminfo)"
  if ((by_memory < 1)); then by_memory=1; fi
  printf '%s\n' "$((cores < by_memory ? cores : by_memory))"
}

# configure PRESET: writes build/PRESET; what CMake says is shown only when it fails, apart from our own notes.
configure() {
  local preset="$1" log
  log="$(mktemp)"
  if ! (cd "$ROOT" && cmake --preset "$preset") >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    die "configuring the preset '$preset' failed; 'scripts/install-deps' installs what it needs"
  fi
  grep -E '^-- weightbus' "$log" >&2 || true
  rm -f "$log"
}

# build PRESET [target...]
build() {
  local preset="$1"
  shift
  local jobs
  jobs="$(build_jobs)"
  say "building preset '$preset' with $jobs jobs"
  ninja -C "$ROOT/build/$preset" -j "$jobs" "$@" >&2
}
