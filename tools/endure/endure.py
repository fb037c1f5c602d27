#!/usr/bin/env python3
"""What the archive lives through: calls that fail, power that fails, clocks that lie, months, and threads in every order.

    endure.py --test BINARY [--mitra BINARY] [--loom BINARY] [--shim LIBRARY]
              [--seeds N] [--days N] [--cuts N] [--faults all|some] [--readme FILE]

Each part prints its figures; together they are a table, which `--readme` writes between the marks of that file. The exit
code is not 0 when one part failed.
"""

import argparse
import datetime
import os
import platform
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BEGIN, END = "<!-- endure: begin -->", "<!-- endure: end -->"


def part(name, command, environment):
    """Runs a part; its rows, or none where it failed."""
    began = time.monotonic()
    print(f"endure: {name}", flush=True)
    done = subprocess.run(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    lines = done.stdout.splitlines()
    rows = [[cell.strip() for cell in line.split("@table", 1)[1].split("|")] for line in lines if "@table" in line]
    for line in lines:
        if line.startswith("skipped"):
            print(line)
    if done.returncode:
        print("\n".join(lines[-60:]))
        print(f"endure: {name} FAILED after {time.monotonic() - began:.0f} s", flush=True)
        return None
    return rows


def test(binary, name):
    return [binary, "--exact", name, "--nocapture", "--test-threads=1"]


def table(rows):
    head = ["what", "how many", "what came of it", "losses unsaid", "took"]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * 5, *rows])


def write_readme(path, text):
    with open(path, encoding="utf-8") as file:
        readme = file.read()
    before, rest = readme.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--test", required=True)
    parser.add_argument("--mitra")
    parser.add_argument("--loom")
    parser.add_argument("--seeds", default="120")
    parser.add_argument("--days", default="30")
    parser.add_argument("--cuts", default="150")
    parser.add_argument("--faults", default="all")
    parser.add_argument("--readme")
    arguments = parser.parse_args()
    binary = arguments.test
    parts = [
        ("calls that fail", test(binary, "faults::whatever_fails_what_is_lost_is_told"), {"MITRA_FAULTS": arguments.faults}),
        (
            "clocks that lie",
            test(binary, "clocks::no_clock_takes_what_is_young_and_none_takes_much_at_once"),
            {"MITRA_SEEDS": arguments.seeds},
        ),
        ("a month", test(binary, "clocks::days_at_a_frame_a_second"), {"MITRA_DAYS": arguments.days}),
    ]
    if os.geteuid() == 0:
        power = [sys.executable, os.path.join(HERE, "powerloss.py"), "--test", binary, "--cuts", arguments.cuts]
        parts.append(("power that fails", power, {}))
    else:
        print("skipped: power that fails: only root may mount a file system")
    if arguments.mitra:
        shipped = [sys.executable, os.path.join(HERE, "shipped.py"), "--mitra", arguments.mitra]
        parts.append(("the recorder as it is shipped", shipped, {}))
    if arguments.loom:
        parts.append(("threads in every order", [arguments.loom, "--test-threads=1"], {}))
    rows, failed = [], 0
    for name, command, environment in parts:
        began = time.monotonic()
        got = part(name, command, environment)
        if got is None:
            failed += 1
            rows.append([name, "", "FAILED", "", f"{time.monotonic() - began:.0f} s"])
        elif got:
            rows.extend(got)
        else:
            rows.append([name, "every order", "no deadlock, nothing passed over", "0", f"{time.monotonic() - began:.0f} s"])
    text = table(rows)
    print(text)
    if arguments.readme and not failed:
        day = datetime.date.today().isoformat()
        kernel = platform.release().split("-")[0]
        note = f"`make endure` of {day} on Linux {kernel}, {os.cpu_count()} CPUs:"
        write_readme(arguments.readme, f"{note}\n\n{text}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
