#!/usr/bin/env -S python3 -B
"""Boots real kernels of Debian in virtual machines and tests the real program in them.

For each kernel: which probes and captures it takes, and how many instructions its verifier went through for each program
(kept in verifier.tsv: a program that is missing now, or that became a good deal larger, is told); one real incident of each
group, made by the laboratory and judged by it; where systemd is process 1, the shipped units. Kernels and systems come from
the mirror of this machine and stay in ~/.cache/mitra-matrix. No hardware help is wanted: everything is emulated, slowly.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import archive
import kernels
import machine
import roots

HERE = pathlib.Path(__file__).parent
VERIFIER = HERE / "verifier.tsv"
# A compiler of another version moves some; what grows by more than this was written.
GROWTH = 1.1
GROUPS = ["cpu", "memory", "disk", "network"]
SECONDS = 3600
AFTER_LOSS_SECONDS = 600


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", help="names, or beginnings of names; without one, all")
    parser.add_argument("--list", action="store_true", help="only say which there are")
    parser.add_argument("--amd64", type=pathlib.Path, metavar="DIR", help="where mitra and mitra-lab are for amd64")
    parser.add_argument("--arm64", type=pathlib.Path, metavar="DIR", help="where they are for arm64")
    parser.add_argument("--only", default="", metavar="CHECK,…", help="only these checks")
    parser.add_argument("--out", type=pathlib.Path, help="where consoles and results are kept; without this, in the cache")
    parser.add_argument("--write", action="store_true", help="write verifier.tsv anew for the kernels that were tested")
    args = parser.parse_args()
    names = [k.name for k in kernels.KERNELS]
    chosen = [k for k in kernels.KERNELS if not args.kernels or k.name in args.kernels or
              any(k.name.startswith(n) for n in args.kernels if n not in names)]
    if args.list or not chosen:
        print("\n".join(names))
        return 0 if args.list else 2
    if os.geteuid() != 0:
        sys.exit("matrix: needs root, to lay out file systems whose files belong to root")
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "mitra-matrix"
    cache.mkdir(parents=True, exist_ok=True)
    out = args.out or cache / "results"
    start = time.monotonic()
    packages = archive.Archive(cache)
    packages.update()
    rows = []
    for kernel in chosen:
        folder = out / kernel.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        row = one(kernel, packages, cache, args, folder)
        (folder / "row.json").write_text(json.dumps(row, indent=1))
        rows.append(row)
        print(line(row), flush=True)
    counts = Counts(VERIFIER)
    failed = report(rows, counts)
    if args.write:
        counts.write(rows)
    print(f"\nconsoles, results and logs: {out}\n{len(rows)} kernels in {(time.monotonic() - start) / 60:.0f} minutes")
    return 1 if failed else 0


def one(kernel, packages, cache, args, folder):
    """Tests one kernel."""
    print(f"== {kernel.name}", flush=True)
    start = time.monotonic()
    row = {"name": kernel.name, "arch": kernel.arch, "btf": kernel.btf, "process1": kernel.process1, "version": "", "checks": [],
           "programs": {}}
    programs = getattr(args, kernel.arch)
    try:
        if programs is None:
            raise archive.NotToBeHad(f"no programs for {kernel.arch} were given")
        image = kernels.prepare(kernel, packages, cache)
        root = roots.root(kernel.arch, packages, cache)
    except (archive.NotToBeHad, subprocess.SubprocessError, OSError) as error:
        return {**row, "missing": str(error), "seconds": round(time.monotonic() - start)}
    row["version"] = image.version
    with tempfile.TemporaryDirectory(prefix=f"mitra-matrix-{kernel.name}-", dir=cache) as scratch:
        scratch = pathlib.Path(scratch)
        payload = roots.payload(kernel.arch, programs / "mitra", programs / "mitra-lab", scratch)
        guest = machine.Machine(kernel, image, root, payload, scratch)
        words = [f"matrix.process1={kernel.process1}", f"matrix.btf={int(kernel.btf)}", f"matrix.only={args.only}"]
        init = "/usr/lib/systemd/systemd" if kernel.process1 == "systemd" else "/matrix/guest/init"
        words.append(f"matrix.init={init}")
        ended = guest.run(SECONDS, *words)
        if ended == "cut":
            ended = guest.run(AFTER_LOSS_SECONDS, *words, "matrix.boot=2")
        shutil.copy(guest.console, folder / "console.log")
        found = guest.results(folder / "results") or {}
        row.update({key: found[key] for key in ["facts", "checks", "programs", "doctor"] if key in found})
        if ended == "late" or not found:
            row["checks"].append({"name": "end", "state": "no", "seconds": SECONDS,
                                  "text": "was not done in time" if ended == "late" else "left no results; see console.log"})
    return {**row, "seconds": round(time.monotonic() - start)}


class Counts:
    """How many instructions the verifier went through, by kernel and program, when it was last looked at."""

    def __init__(self, path):
        self.path, self.known = path, {}
        for text in path.read_text().splitlines()[1:] if path.exists() else []:
            name, version, program, verified, insns = text.split("\t")
            self.known.setdefault(name, {})[program] = (version, verified, insns)

    def judge(self, row):
        """What a run says against what is known: programs that are gone, and those that have grown."""
        # Where nothing was loaded nobody looked.
        known = self.known.get(row["name"], {}) if row["programs"] else {}
        for program, (_, verified, insns) in known.items():
            now = row["programs"].get(program)
            before = int(verified) if verified != "-" else int(insns)
            if now is None:
                yield f"{program} is not loaded any more"
            elif (now["verified"] or now["insns"]) > before * GROWTH:
                yield f"{program} has grown from {before} to {now['verified'] or now['insns']} instructions"

    def write(self, rows):
        for row in rows:
            if row["programs"]:
                self.known[row["name"]] = {p: (row["version"], str(n["verified"] or "-"), str(n["insns"]))
                                           for p, n in row["programs"].items()}
        lines = ["kernel\tversion\tprogram\tverified\tinsns"]
        for name in sorted(self.known):
            lines += ["\t".join([name, v, p, verified, insns]) for p, (v, verified, insns) in sorted(self.known[name].items())]
        self.path.write_text("".join(f"{text}\n" for text in lines))


def state(row, name):
    found = [c["state"] for c in row["checks"] if c["name"] == name]
    return found[-1] if found else "."


def verified(row):
    """The sum and the largest of the counts; nothing where the kernel does not count."""
    counts = [n["verified"] for n in row["programs"].values() if n["verified"]]
    return f"{sum(counts)}/{max(counts)}" if counts else "."


def ability(row):
    """Probes and kinds of captures that are there."""
    probes = [a for a in row.get("doctor", []) if a["name"].startswith("probe ")]
    armed = next((a for a in row.get("doctor", []) if a["name"].startswith("on-demand probes")), None)
    kinds = len(armed["why"].split(",")) if armed and armed["state"] != "no" else 0
    return f"{sum(a['state'] == 'yes' for a in probes)}/{len(probes)} {kinds}" if probes else "."


def line(row):
    if "missing" in row:
        return f"{row['name']:<14} not to be had: {row['missing']}"
    units = [c["state"] for c in row["checks"] if c["name"] not in ["boot", "doctor", "verifier", "without-bpf", *GROUPS]]
    units = f"{units.count('ok')}/{len(units)}" if units else "."
    cells = [row["name"], row["version"], "yes" if row["btf"] else "no", row["process1"], state(row, "boot"), ability(row),
             str(len(row["programs"]) or "."), verified(row), *[state(row, g) for g in GROUPS], units, str(row["seconds"])]
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS)).rstrip()


TITLES = ["kernel", "version", "BTF", "process 1", "boot", "probes, kinds", "programs", "verified sum/max", *GROUPS, "units", "s"]
WIDTHS = [14, 24, 3, 9, 4, 13, 8, 16, 3, 6, 4, 7, 5, 5]


def report(rows, counts):
    """Prints the table and what is wrong, and says whether anything is."""
    print("\n" + "  ".join(f"{title:<{width}}" for title, width in zip(TITLES, WIDTHS)).rstrip())
    for row in rows:
        print(line(row))
    failed = False
    for row in rows:
        grown = list(counts.judge(row))
        wrong = [c for c in row["checks"] if c["state"] != "ok"]
        failed = failed or bool(grown) or any(c["state"] == "no" for c in wrong)
        absent = [a for a in row.get("doctor", []) if a["state"] != "yes"]
        if wrong or grown or absent:
            print(f"\n{row['name']}")
        for check in wrong:
            print(f"  {check['state']:<3} {check['name']}: {check['text'].strip()}")
        for text in grown:
            print(f"  no  {text}")
        for one_ in absent:
            print(f"  {one_['state']:<8} {one_['name']}: {one_['why']}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
