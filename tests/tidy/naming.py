#!/usr/bin/env python3
"""Runs clang-tidy with .clang-tidy over every source of ours in a compilation database, headers through their users.

A file that passed is not looked at again until it, a header of ours that it includes, its compile command, .clang-tidy
or clang-tidy itself changes; the last line says how many were checked now and how many stood.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True

from tree import INCLUDE  # noqa: E402

TIME_LIMIT_S = 300
# Flags of g++ that clang 14 does not know, and what a sanitizer preset adds.
DROPPED = ("-fno-sanitize-recover", "-fsanitize=")


def load_database(build):
    """{path: command} of the sources below the root that are not generated."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if build.resolve() not in path.parents:
            found[path] = entry["command"]
    return found


class Fingerprint:
    """Hashes a source with every header of ours that it reaches."""

    def __init__(self, root, build, common):
        self.root, self.build, self.common = root, build, common
        self.seen = {}

    def parts(self, path):
        """(hash of the text, headers of ours it includes)."""
        if path not in self.seen:
            text = path.read_text(encoding="utf-8", errors="replace")
            headers = []
            for match in INCLUDE.finditer(text):
                for base in (path.parent, self.root, self.build / "schemas" / "generated"):
                    if (base / match.group(2)).is_file():
                        headers.append((base / match.group(2)).resolve())
                        break
            self.seen[path] = (hashlib.sha256(text.encode()).hexdigest(), headers)
        return self.seen[path]

    def of(self, path, command):
        reached, waiting = {}, [path]
        while waiting:
            current = waiting.pop()
            if current not in reached:
                reached[current], more = self.parts(current)
                waiting += more
        parts = [self.common, command] + [f"{name}={value}" for name, value in sorted(reached.items())]
        return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


def check(path, command, directory):
    """What clang-tidy has against one file; empty when nothing."""
    arguments = [a for a in shlex.split(command) if not a.startswith(DROPPED)]
    while arguments and os.path.basename(arguments[0]) in ("ccache", "sccache"):
        arguments.pop(0)
    arguments = arguments[1:]
    for flag in ("-o", "-c"):
        while flag in arguments:
            at = arguments.index(flag)
            del arguments[at:at + (2 if flag == "-o" else 1)]
    arguments = [a for a in arguments if not a.startswith("-f") or a in ("-fPIC", "-fPIE")]
    arguments = [a for a in arguments if a != str(path) and a != "-Werror"]
    command_line = ["clang-tidy", "--quiet", str(path), "--", *arguments, "-x", "c++", "-Wno-everything"]
    try:
        done = subprocess.run(command_line, cwd=directory, capture_output=True, text=True, timeout=TIME_LIMIT_S,
                              check=False)
    except subprocess.TimeoutExpired:
        return f"{path}: clang-tidy did not end within {TIME_LIMIT_S} s"
    if done.returncode == 0:
        return ""
    return done.stdout.strip() or done.stderr.strip() or f"{path}: clang-tidy ended with {done.returncode}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent.parent, type=pathlib.Path)
    parser.add_argument("--build", required=True, type=pathlib.Path, help="the folder of compile_commands.json")
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="only these; all unless given")
    options = parser.parse_args()
    if not shutil.which("clang-tidy"):
        print("naming: clang-tidy is missing; run scripts/install-deps")
        return 1
    root, build = options.root.resolve(), options.build.resolve()
    database = load_database(build)
    if options.files:
        wanted = {path.resolve() for path in options.files}
        absent = sorted(wanted - set(database))
        if absent:
            print(f"naming: {absent[0]} is not in {build}/compile_commands.json; build it first")
            return 1
        database = {path: command for path, command in database.items() if path in wanted}
    if not database:
        print(f"naming: no source of ours in {build}/compile_commands.json")
        return 1

    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, text=True, check=True).stdout
    rules = (root / ".clang-tidy").read_text(encoding="utf-8")
    fingerprint = Fingerprint(root, build, hashlib.sha256((version + rules + pathlib.Path(__file__).read_text(
        encoding="utf-8")).encode()).hexdigest())
    cache = build / "tidy-cache"
    cache.mkdir(exist_ok=True)
    stamps = {path: cache / fingerprint.of(path, command) for path, command in database.items()}
    waiting = [path for path in sorted(database) if options.files or not stamps[path].exists()]

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        checks = {pool.submit(check, path, database[path], build): path for path in waiting}
        for done in concurrent.futures.as_completed(checks):
            path, against = checks[done], done.result()
            if against:
                failed += 1
                print(against, flush=True)
            else:
                stamps[path].touch()
    for stale in set(cache.iterdir()) - set(stamps.values()):
        if not options.files:
            stale.unlink()
    print(f"tidy.naming: {failed} of {len(database)} files have findings "
          f"({len(waiting)} checked now, {len(database) - len(waiting)} unchanged since they passed)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
