#!/usr/bin/env python3
"""lookups.py SECONDS: looks up users, groups and a host, and prints how many a second."""

import grp
import json
import pwd
import socket
import sys
import time


def main():
    seconds = float(sys.argv[1])
    users = [user.pw_name for user in pwd.getpwall()][:50]
    groups = [group.gr_name for group in grp.getgrall()][:50]
    count, slowest, began = 0, 0.0, time.monotonic()
    before = began
    while before - began < seconds:
        for look, names in [(pwd.getpwnam, users), (grp.getgrnam, groups), (socket.gethostbyname, ["localhost"])]:
            for name in names:
                look(name)
                now = time.monotonic()
                slowest = max(slowest, now - before)
                before = now
                count += 1
    print(json.dumps({"lookups_per_s": count / (before - began), "slowest_s": slowest}))


if __name__ == "__main__":
    main()
