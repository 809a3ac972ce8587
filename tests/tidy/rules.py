"""The tidy rules. Each takes a Tree and returns findings: 'path:line: what is wrong; what to do'."""
import os
import re
import shutil
import subprocess

from tree import CPP_SUFFIXES, SOURCE_FOLDERS

PURE = ("base", "model", "plan", "protocol", "wire")

# Lowest first. A folder may include any folder of a lower level, its own, and those named in SIBLINGS.
LEVELS = (
    ("base",), ("model",), ("plan",), ("protocol",), ("wire", "device"),
    ("transport", "channel", "store", "checkpoint"), ("client", "observe"), ("runtime",), ("services", "cli"),
)
SIBLINGS = {}
# The few files that may do what their folder may not, and why.
PURE_EXCEPTIONS = {
    # A failed assertion has to say so before the process ends.
    "weightbus/base/assert.cc": ("cstdio", "cstdlib", "fprintf"),
}
# Standard headers that need no operating system. One that is not listed is refused until somebody adds it here.
PURE_HEADERS = set("""
algorithm any array bit bitset cassert cctype charconv chrono cinttypes climits cmath compare concepts cstddef cstdint
cstring deque exception expected flat_map forward_list functional initializer_list iterator limits list map memory
memory_resource new numbers numeric optional queue ranges ratio set source_location span stack stdexcept string
string_view tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray variant vector version
stddef.h stdint.h string.h
fmt/core.h fmt/format.h fmt/ranges.h nlohmann/json.hpp nlohmann/json_fwd.hpp tl/expected.hpp xxhash.h
""".split())
# Libraries with one owner, so that each can be replaced in one place.
OWNERS = (
    (re.compile(r"^(capnp|kj)/|\.capnp\.h$"), ("wire",), "Cap'n Proto"),
    (re.compile(r"^zmq(_addon)?\.hp*$"), ("transport",), "ZeroMQ"),
    (re.compile(r"^sqlite3\.h$"), ("store",), "SQLite"),
)
HEAVY = re.compile(r"^(nlohmann/json\.hpp|CLI/|spdlog/|gtest/|gmock/|zmq\.hpp|prometheus/(?!metric))")
IMPURE_USES = (
    (re.compile(r"::now\s*\("), "reads a clock"),
    (re.compile(r"(?<![\w.>])(?:std::)?time\s*\(\s*(?:NULL|nullptr|0|&)"), "reads a clock"),
    (re.compile(r"\b(?:clock_gettime|gettimeofday|nanosleep|usleep|sleep_for|sleep_until)\s*\("), "reads a clock or waits"),
    (re.compile(r"\b(?:secure_)?getenv\s*\("), "reads the environment"),
    (re.compile(r"(?<![\w.>])(?:std::)?s?rand\s*\(|\bstd::(?:random_device|mt19937(?:_64)?|default_random_engine)\b"),
     "is random; seeded numbers come from base/prng.h"),
    (re.compile(r"\bstd::(?:cout|cerr|clog|cin|[io]?fstream|filesystem|FILE)\b|\b(?:fopen|fprintf|vfprintf|puts|fputs)\s*\(|"
                r"(?<![\w.>])(?:std::)?printf\s*\(|\bfmt::print"), "does input or output"),
    (re.compile(r"(?<![\w.>:])::(?:open|read|write|close|socket|bind|connect|send|recv|mmap|munmap|fork|kill)\s*\(|"
                r"\b(?:shm_open|memfd_create|posix_fallocate)\s*\("), "calls the operating system"),
    (re.compile(r"\bstd::(?:thread|jthread|mutex|recursive_mutex|shared_mutex|timed_mutex|lock_guard|unique_lock|"
                r"scoped_lock|condition_variable(?:_any)?|atomic\w*|async|future|promise|once_flag|call_once)\b|"
                r"\bthread_local\b|\bpthread_\w+"), "uses threads"),
    (re.compile(r"\bspdlog::|\bSPDLOG_|\bsyslog\s*\("), "logs"),
)


def _finding(source, line, what):
    return f"{source.path}:{line}: {what}"


def purity(tree):
    """PURE folders do no I/O, no clock, no threads, no randomness, no logging."""
    found = []
    for source in tree.cpp(tuple(f"weightbus/{folder}" for folder in PURE)):
        excepted = PURE_EXCEPTIONS.get(source.path, ())
        for line, system, name in source.includes():
            capnp = source.folder == "wire" and re.match(r"(capnp|kj)/", name)
            if system and name not in PURE_HEADERS and name not in excepted and not capnp:
                found.append(_finding(source, line, f"<{name}> in the PURE folder {source.folder}/: move the code that "
                                                    "needs it out, or list a harmless header in tests/tidy/rules.py"))
        for pattern, why in IMPURE_USES:
            for match in pattern.finditer(source.code):
                used = match.group(0).rstrip("( \t")
                if used.split("::")[-1] not in excepted:
                    found.append(_finding(source, source.line_of(match.start()),
                                          f"'{used}' {why}, in the PURE folder {source.folder}/: have it handed in"))
    return found


def layers(tree):
    """Includes point down the layers only; each outside library has its owner."""
    level_of = {folder: level for level, folders in enumerate(LEVELS) for folder in folders}
    found = []
    for source in tree.cpp(("weightbus", "services", "cli")):
        own = source.folder
        if own not in level_of:
            found.append(_finding(source, 1, f"folder {own}/ has no level; add it to LEVELS in tests/tidy/rules.py"))
            continue
        for line, _, name in source.includes():
            for pattern, owners, library in OWNERS:
                if pattern.search(name) and own not in owners:
                    found.append(_finding(source, line, f"{name}: only {', '.join(owners)}/ uses {library}"))
            parts = name.split("/")
            if parts[0] not in ("weightbus", "services", "cli", "tests", "bench", "examples"):
                continue
            other = parts[1] if parts[0] == "weightbus" and len(parts) > 1 else parts[0]
            if other == own or other in SIBLINGS.get(own, ()):
                continue
            if other not in level_of or level_of[other] >= level_of[own]:
                found.append(_finding(source, line, f"{own}/ may not include {other}/: dependence goes services, cli -> "
                                                    "runtime -> client, observe -> transport, channel, store, checkpoint "
                                                    "-> wire, device -> protocol -> plan -> model -> base"))
    return found


def platform(tree):
    """No platform switch inside a file: whole files are on or off in CMake."""
    switch = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif)\b([^\n]*)", re.MULTILINE)
    found = []
    for source in tree.cpp(("weightbus", "services", "cli", "examples")):
        for match in switch.finditer(source.code):
            if match.group(2).strip() in ("__cplusplus", "defined(__cplusplus)"):
                continue  # a C header that C++ may include
            found.append(_finding(source, source.line_of(match.start()),
                                  f"'#{match.group(1)}{match.group(2).rstrip()}': put the variants into files of their "
                                  "own and choose between them in CMake"))
    return found


def headers(tree):
    """#pragma once, nothing heavy in a header, own includes by full path (tests and benchmarks may name a neighbour)."""
    found = []
    for source in tree.cpp():
        if source.path.endswith((".h", ".cuh")) and not re.search(r"^#pragma once$", source.code, re.MULTILINE):
            found.append(_finding(source, 1, "no '#pragma once'"))
        for line, system, name in source.includes():
            if source.path.startswith("weightbus/") and source.path.endswith(".h") and HEAVY.match(name):
                found.append(_finding(source, line, f"{name} in a header costs everyone: include it in the .cc"))
            ours = source.path.startswith(("weightbus/", "services/", "cli/"))
            if ours and not system and "/" not in name and not name.endswith(".capnp.h"):
                found.append(_finding(source, line, f'"{name}": include by the path from the root'))
    return found


LINES_LISTED = 400
LINES_MAX = 600


def length(tree):
    """No file over LINES_MAX lines; those over LINES_LISTED are listed."""
    found = []
    for source in tree.texts():
        lines = source.text.count("\n")
        if lines > LINES_MAX:
            found.append(_finding(source, lines, f"{lines} lines; split it ({LINES_MAX} at most)"))
        elif lines > LINES_LISTED:
            print(f"note: {source.path} has {lines} lines; aim for {LINES_LISTED}")
    return found


# Written in halves, so that this file passes its own check.
LEFTOVERS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b|\bDISABLED" r"_\w|\bGTEST" r"_SKIP\b|^[ \t]*#[ \t]*if 0\b", re.MULTILINE)


def leftovers(tree):
    """Nothing half-done and no test switched off."""
    return [_finding(source, source.line_of(match.start()), f"'{match.group(0).strip()}': finish it, or take it out")
            for source in tree.texts() for match in LEFTOVERS.finditer(source.text)]


def scripts(tree):
    """Every shell script is strict, and parses; shellcheck has its say where it is installed."""
    found = []
    candidates = [s for s in tree.texts() if re.match(r"#!.*\bbash\b|# shellcheck shell=bash", s.text)]
    for source in candidates:
        if source.text.startswith("#!") and not re.search(r"^set -euo pipefail$", source.text, re.MULTILINE):
            found.append(_finding(source, 1, "no 'set -euo pipefail'"))
        parsed = subprocess.run(["bash", "-n", tree.root / source.path], capture_output=True, text=True, check=False)
        if parsed.returncode != 0:
            found.append(_finding(source, 1, f"does not parse: {parsed.stderr.strip()}"))
    if candidates and shutil.which("shellcheck"):
        checked = subprocess.run(["shellcheck", "-x", "-f", "gcc", *(s.path for s in candidates)], cwd=tree.root,
                                 capture_output=True, text=True, check=False)
        found += checked.stdout.splitlines()
    return found


def links(tree):
    """Relative links of the documents lead somewhere."""
    found = []
    documents = [name for name in os.listdir(tree.root) if name.endswith(".md")]
    documents += tree.paths(("docs",), (".md",))
    for path in sorted(documents):
        text = (tree.root / path).read_text(encoding="utf-8")
        for match in re.finditer(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", text):
            target = match.group(1)
            if "://" in target or target.startswith("mailto:"):
                continue
            if not (tree.root / os.path.dirname(path) / target).exists():
                found.append(f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {target} does not exist")
    return found


def format(tree):  # pylint: disable=redefined-builtin
    """Every source follows .clang-format."""
    if not shutil.which("clang-format"):
        return ["clang-format is missing; run scripts/install-deps"]
    paths = tree.paths(SOURCE_FOLDERS, CPP_SUFFIXES)
    if not paths:
        return []
    done = subprocess.run(["clang-format", "--dry-run", "-Werror", "--style=file", "--ferror-limit=1", *paths],
                          cwd=tree.root, capture_output=True, text=True, check=False)
    found = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", done.stderr, re.MULTILINE)))
    if done.returncode != 0 and not found:
        return [f"clang-format failed: {done.stderr.strip()[:500]}"]
    return [f"{path}: differs from .clang-format; run scripts/format" for path in found]


RULES = {rule.__name__: rule for rule in (purity, layers, platform, headers, length, leftovers, scripts, links, format)}
