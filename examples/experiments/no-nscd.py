#!/usr/bin/env python3
"""no-nscd.py: fails if nscd runs, and makes the directory of its socket."""

import os
import subprocess
import sys


def main():
    if subprocess.run(["pidof", "nscd"], stdout=subprocess.DEVNULL).returncode == 0:
        sys.exit("nscd runs, so both variants would use it; stop it first: systemctl stop nscd")
    os.makedirs("/run/nscd", exist_ok=True)


if __name__ == "__main__":
    main()
