#!/usr/bin/env python3
"""Runs the tidy rules of rules.py: tidy.py [--root DIR] [RULE...]; all rules unless some are named."""
import argparse
import pathlib
import sys

sys.dont_write_bytecode = True

from rules import RULES  # noqa: E402
from tree import CPP_SUFFIXES, SOURCE_FOLDERS, Tree  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=ROOT, help="the tree to check")
    parser.add_argument("--list-sources", action="store_true", help="print every C++ source and end")
    parser.add_argument("rules", nargs="*", metavar="RULE", help=", ".join(RULES))
    options = parser.parse_args()
    tree = Tree(options.root)
    if options.list_sources:
        print("\n".join(tree.paths(SOURCE_FOLDERS, CPP_SUFFIXES)))
        return 0
    unknown = [name for name in options.rules if name not in RULES]
    if unknown:
        parser.error(f"no rule {unknown[0]!r}; there are {', '.join(RULES)}")
    if not tree.cpp():
        print(f"tidy: no source below {options.root}")
        return 1
    failed = False
    for name in options.rules or RULES:
        found = RULES[name](tree)
        for finding in found:
            print(finding)
        print(f"tidy.{name}: {len(found)} findings")
        failed = failed or bool(found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
