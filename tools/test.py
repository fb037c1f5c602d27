#!/usr/bin/env -S python3 -B
"""Runs the tests in tiers, and says how many passed and how long each tier took.

    tools/test.py hermetic   needs neither root, nor a network, nor a quiet machine
    tools/test.py kernel     as root against this kernel: BPF programs, probes, hostile processes,
                             privileges, full disks
    tools/test.py search     against a real OpenSearch, which tools/opensearch.sh fetches and starts,
                             and a real Kafka (tools/kafka.sh)
    tools/test.py cost       instructions of a sample, counted: `make bench-cost`
    tools/test.py lab        as root a handful of real incidents
    tools/test.py all        all of them, one after the other

Tests of the tiers `kernel` and `search` are marked `#[ignore = "REASON"]`: a plain `cargo test`
names them and does not run them. Tests of the tier `search` have `opensearch` or `kafka` in
their names.
Ignored tests with `by_hand` in their names are measurements, which no tier runs. A test that cannot
run here prints a line `skipped: REASON`; it counts as skipped, not as passed.

What fails is run once more, alone: programs in tests have time limits, and others use the machine. If
it passes then, it counts as passed, and is named at the end: it is to be mended all the same.

The last line is `N passed, M failed, K skipped`, the sum of all tiers.
"""

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
# What each tier tells a test program.
SELECT = {
    "hermetic": [],
    "kernel": ["--ignored", "--skip", "opensearch", "--skip", "kafka", "--skip", "by_hand"],
    "search": ["--ignored", "opensearch", "kafka"],
}
NEEDS_ROOT = {"kernel", "lab"}
# What these measure depends on what else the machine does.
TRIED_AGAIN = {"hermetic", "kernel", "search"}
TIERS = ["hermetic", "kernel", "search", "cost", "lab"]
# A test program that says nothing for so long hangs.
PROGRAM_S_MAX = 1200
LAB_S_MAX = 1500
SLOWEST = 10
STORED_COST = ROOT / "tools/bench/instructions.tsv"
RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed;", re.M)
LAB_RESULT = re.compile(r"^(\d+) right, (\d+) wrong, (\d+) not made$", re.M)
SKIPPED = re.compile(r"^skipped: (.*)$", re.M)
FAILED = re.compile(r"^test (\S+) \.\.\. FAILED$", re.M)


@dataclasses.dataclass
class Program:
    name: str
    path: pathlib.Path
    directory: pathlib.Path


@dataclasses.dataclass
class Outcome:
    passed: int = 0
    failed: int = 0
    seconds: float = 0.0
    # How often for each reason.
    skipped: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    # Names of those that failed once.
    flaky: list = dataclasses.field(default_factory=list)

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.seconds += other.seconds
        self.skipped.update(other.skipped)
        self.flaky += other.flaky

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped.total()} skipped"


def build():
    """Compiles everything, once for all tiers. None where that fails."""
    started_s = time.monotonic()
    argv = ["cargo", "test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"]
    run = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if run.returncode != 0:
        return None
    programs = []
    for line in run.stdout.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message.get("executable"):
            directory = pathlib.Path(message["manifest_path"]).parent
            target = message["target"]
            kind = "" if target["kind"] == ["test"] else " (unit)"
            name = f"{directory.name}/{target['name'].removeprefix('mitra_')}{kind}"
            programs.append(Program(name, pathlib.Path(message["executable"]), directory))
    programs.sort(key=lambda program: program.name)
    print(f"built {len(programs)} test programs in {time.monotonic() - started_s:.0f} s", flush=True)
    return programs


def run_program(program, select):
    """What came of one test program; what it said, if something failed."""
    started_s = time.monotonic()
    # Cargo starts it in the folder of its crate.
    environment = os.environ | {"CARGO_MANIFEST_DIR": str(program.directory)}
    try:
        run = subprocess.run(
            [program.path, *select, "--show-output"],
            cwd=program.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PROGRAM_S_MAX,
        )
        said, code = run.stdout.decode(errors="replace"), run.returncode
    except subprocess.TimeoutExpired as expired:
        said, code = (expired.stdout or b"").decode(errors="replace") + "\ntest.py: it did not end\n", -1
    outcome = read(said)
    if code != 0 and outcome.failed == 0:
        # It died before it could say which test that was.
        outcome.failed = 1
    outcome.seconds = time.monotonic() - started_s
    return outcome, said if outcome.failed else ""


def try_again(program, outcome, said):
    """Runs once more what failed; what it said, if something failed again."""
    names = FAILED.findall(said)
    if len(names) != outcome.failed:
        return ""
    for name in names:
        again, what = run_program(program, ["--include-ignored", "--exact", name])
        outcome.seconds += again.seconds
        if again.failed or again.passed != 1:
            return what
        outcome.flaky.append(f"{program.name} {name}")
    outcome.passed, outcome.failed = outcome.passed + outcome.failed, 0
    return ""


def read(said):
    """Counts what libtest printed. Each test is skipped once, by the first reason that it gives."""
    outcome = Outcome()
    for passed, failed in RESULT.findall(said):
        outcome.passed += int(passed)
        outcome.failed += int(failed)
    # With `--show-output` the output of passing tests stands below `successes:`, a block for each.
    _, _, shown = said.partition("\nsuccesses:\n")
    shown, _, _ = shown.partition("\nsuccesses:\n")
    for block in re.split(r"^---- .* stdout ----$", shown, flags=re.M)[1:]:
        reason = SKIPPED.search(block)
        if reason:
            outcome.skipped[reason[1]] += 1
    outcome.passed -= outcome.skipped.total()
    return outcome


def count(programs, select):
    """How many tests a tier has."""
    total = 0
    for program in programs:
        argv = [program.path, *select, "--list", "--format", "terse"]
        run = subprocess.run(argv, cwd=program.directory, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        total += sum(line.endswith(": test") for line in run.stdout.splitlines())
    return total


def run_tier(tier, programs):
    select = SELECT[tier]
    total, times = Outcome(), []
    for program in programs:
        outcome, said = run_program(program, select)
        if outcome.failed:
            print(said, flush=True)
            said = try_again(program, outcome, said) if tier in TRIED_AGAIN else ""
        total.add(outcome)
        if outcome.passed + outcome.failed + outcome.skipped.total() == 0:
            continue
        times.append((outcome.seconds, program.name))
        print(f"{outcome.seconds:7.1f} s  {program.name}: {outcome}", flush=True)
        if said:
            print(said, flush=True)
    if tier != "search":
        slowest = sorted(times, reverse=True)[:SLOWEST]
        print(f"slowest of {len(times)}: " + ", ".join(f"{name} {s:.0f} s" for s, name in slowest))
    return total


def run_lab():
    """A handful of incidents, by the laboratory itself."""
    started_s = time.monotonic()
    # Built with the tests, which start the programs too.
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    lab = subprocess.Popen(
        ["timeout", str(LAB_S_MAX), pathlib.Path(target) / "debug/mitra-lab", "smoke"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    said = []
    for line in lab.stdout:
        print(line, end="", flush=True)
        said.append(line)
    code = lab.wait()
    said = "".join(said)
    outcome = Outcome(seconds=time.monotonic() - started_s)
    for right, wrong, unmade in LAB_RESULT.findall(said):
        outcome.passed, outcome.failed = int(right), int(wrong)
        outcome.skipped["an incident could not be made here, as said above"] += int(unmade)
    outcome.failed += code != 0 and outcome.failed == 0
    return outcome


def run_cost():
    started_s = time.monotonic()
    outcome = Outcome()
    if not STORED_COST.exists():
        # Nothing to compare with is no success.
        outcome.skipped[f"no {STORED_COST.name}; make bench-cost WRITE=1 stores the numbers"] = 1
        return outcome
    argv = ["make", "--no-print-directory", "bench-cost"]
    failed = subprocess.run(argv, cwd=ROOT, stdin=subprocess.DEVNULL).returncode != 0
    outcome.passed, outcome.failed = int(not failed), int(failed)
    outcome.seconds = time.monotonic() - started_s
    return outcome


def run(tier, programs):
    print(f"\n== {tier}", flush=True)
    if tier in NEEDS_ROOT and os.geteuid() != 0:
        outcome = Outcome()
        tests = count(programs, SELECT[tier]) if tier in SELECT else 1
        outcome.skipped[f"the tier {tier} needs root"] = tests
    else:
        outcome = {"lab": run_lab, "cost": run_cost}.get(tier, lambda: run_tier(tier, programs))()
    for reason, times in outcome.skipped.most_common():
        print(f"skipped {times}: {reason}")
    print(f"{tier}: {outcome}, in {outcome.seconds:.0f} s", flush=True)
    return outcome


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tiers", nargs="+", choices=[*TIERS, "all"], metavar="TIER", help=f"{', '.join(TIERS)} or all")
    options = parser.parse_args()
    tiers = TIERS if "all" in options.tiers else options.tiers
    total = Outcome()
    programs = build() if set(tiers) - {"cost"} else []
    if programs is None:
        total.failed = 1
        tiers = []
    for tier in tiers:
        total.add(run(tier, programs))
    for name in total.flaky:
        print(f"failed once, passed alone: {name}")
    print(f"\n{total}", flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
