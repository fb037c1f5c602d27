#!/usr/bin/env python3
"""Asserts that every crate that ends in the binary, or helps to build or test it, may be used under our licence.

Reads `cargo metadata` and evaluates each licence expression against the list below: of alternatives (`OR`) one
has to be allowed, of things that hold together (`AND`) all.
"""

import json
import re
import subprocess
import sys

ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    # Copyleft by file only; the files are not changed here.
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
}


def allowed(expression):
    """Whether an SPDX expression, or the old form `MIT/Apache-2.0`, can be satisfied by the list."""
    tokens = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))

    def any_of():
        result = all_of()
        while tokens and tokens[0].upper() == "OR":
            tokens.pop(0)
            result = all_of() or result
        return result

    def all_of():
        result = one()
        while tokens and tokens[0].upper() == "AND":
            tokens.pop(0)
            result = one() and result
        return result

    def one():
        token = tokens.pop(0)
        if token == "(":
            result = any_of()
            tokens.pop(0)
            return result
        if tokens and tokens[0].upper() == "WITH":
            tokens.pop(0)
            token = f"{token} WITH {tokens.pop(0)}"
        return token in ALLOWED

    try:
        result = any_of()
    except IndexError:
        return False
    return result and not tokens


def check_itself():
    for good in ["MIT", "MIT OR GPL-3.0", "MIT/Apache-2.0", "(MIT OR GPL-2.0) AND Unicode-3.0",
                 "Apache-2.0 WITH LLVM-exception"]:
        assert allowed(good), good
    for bad in ["", "GPL-3.0-only", "MIT AND GPL-2.0", "(MIT", "MIT Apache-2.0", "AGPL-3.0 OR GPL-2.0",
                "GPL-2.0 WITH LLVM-exception"]:
        assert not allowed(bad), bad


def main():
    check_itself()
    output = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"],
        stdout=subprocess.PIPE,
        check=True,
    )
    failed = False
    for package in json.loads(output.stdout)["packages"]:
        licence = package["license"] or ""
        if not allowed(licence):
            what = licence or f"no licence expression, only {package['license_file'] or 'nothing'}"
            print(f"check-licences: {package['name']} {package['version']}: {what}", file=sys.stderr)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
