"""Debian's packages, by an apt with a folder of its own: what the machine has installed and configured stays as it is."""

import os
import pathlib
import re
import subprocess
import time

# Oldest first. One that the mirror does not have is passed over.
SUITES = ["bullseye", "bullseye-security", "bookworm", "bookworm-backports", "trixie", "trixie-backports", "sid"]
ARCHITECTURES = ["amd64", "arm64"]
LISTS_AGE_S = 24 * 3600


class NotToBeHad(Exception):
    """The mirror has no such package, or no longer."""


def machine_sources():
    """(address, suite, keyring or None) of each binary source that the machine has."""
    for path in sorted(pathlib.Path("/etc/apt").glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            fields = dict(re.findall(r"^([A-Za-z-]+):\s*(.*)$", stanza, re.MULTILINE))
            if "deb" in fields.get("Types", "").split() and fields.get("Enabled", "yes") != "no":
                for address in fields.get("URIs", "").split():
                    for suite in fields.get("Suites", "").split():
                        yield address, suite, fields.get("Signed-By")
    for path in [pathlib.Path("/etc/apt/sources.list"), *sorted(pathlib.Path("/etc/apt").glob("sources.list.d/*.list"))]:
        text = path.read_text() if path.exists() else ""
        for options, address, suite in re.findall(r"^deb\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)", text, re.MULTILINE):
            keyring = re.search(r"signed-by=(\S+)", options)
            yield address, suite, keyring.group(1) if keyring else None


class Archive:
    def __init__(self, cache):
        self.dir = cache / "apt"
        self.debs = cache / "debs"
        self.debs.mkdir(parents=True, exist_ok=True)
        for folder in ["etc/apt/apt.conf.d", "etc/apt/preferences.d", "etc/apt/trusted.gpg.d", "var/lib/apt/lists/partial",
                       "var/cache/apt/archives/partial", "var/lib/dpkg"]:
            (self.dir / folder).mkdir(parents=True, exist_ok=True)
        (self.dir / "var/lib/dpkg/status").touch()
        self.sources = self._sources()
        (self.dir / "etc/apt/sources.list").write_text("".join(f"{line}\n" for line in self.sources.values()))

    def _sources(self):
        """The line of each suite, at the mirror from which the machine has its own packages."""
        release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', pathlib.Path("/etc/os-release").read_text(), re.MULTILINE))
        own = release.get("VERSION_CODENAME", "")
        found = {suite: (address, keyring) for address, suite, keyring in machine_sources()}
        if release.get("ID") != "debian" or own not in found:
            raise SystemExit("matrix: needs a Debian machine, whose mirror has the kernels; /etc/apt names none")
        lines = {}
        for suite in SUITES:
            address, keyring = found.get(f"{own}-security" if suite.endswith("-security") else own, (None, None))
            if address:
                signed = f" signed-by={keyring}" if keyring else ""
                lines[suite] = f"deb [arch={','.join(ARCHITECTURES)}{signed}] {address} {suite} main"
        return lines

    def _run(self, program, *arguments, check=True):
        options = {"Dir": self.dir, "Dir::State::status": self.dir / "var/lib/dpkg/status", "APT::Architecture": "amd64",
                   "APT::Sandbox::User": "root", "Acquire::Languages": "none", "Acquire::Retries": "2",
                   "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false"}
        flags = [f"-o{name}={value}" for name, value in options.items()]
        flags += [f"-oAPT::Architectures::={name}" for name in ARCHITECTURES]
        done = subprocess.run([program, *flags, *arguments], cwd=self.debs, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=1200, check=False)
        if check and done.returncode != 0:
            last = [line for line in done.stderr.splitlines() if line.startswith("E:")]
            raise NotToBeHad(last[0] if last else f"{program} {' '.join(map(str, arguments))} failed")
        return done.stdout

    def update(self):
        """Fetches the lists, at most once in a day."""
        stamp = self.dir / "updated"
        wanted = "\n".join(self.sources.values())
        if stamp.exists() and stamp.read_text() == wanted and time.time() - stamp.stat().st_mtime < LISTS_AGE_S:
            return
        # A suite that is not there is no failure: what it would have had is missed later, by name.
        self._run("apt-get", "-qq", "update", check=False)
        stamp.write_text(wanted)

    def versions(self, package, arch):
        """Newest first."""
        lines = self._run("apt-cache", "madison", f"{package}:{arch}", check=False).splitlines()
        return list(dict.fromkeys(line.split("|")[1].strip() for line in lines if line.count("|") == 2))

    def depends(self, package, arch, version):
        """(name, version or None) of what a package depends on; of alternatives the first."""
        text = self._run("apt-cache", "show", f"{package}:{arch}={version}")
        line = re.search(r"^Depends: (.*)$", text, re.MULTILINE)
        for one in line.group(1).split(",") if line else []:
            found = re.match(r"\s*([a-z0-9][a-z0-9+.-]*)(?::\w+)?(?:\s*\(=\s*([^)]+)\))?", one)
            if found:
                yield found.groups()

    def download(self, package, arch, version=None):
        """The path of the package, fetched unless it is there."""
        if version is None:
            version = next(iter(self.versions(package, arch)), None)
            if version is None:
                raise NotToBeHad(f"no package {package}:{arch}")
        path = self.debs / f"{package}_{version.replace(':', '%3a')}_{arch}.deb"
        if not path.exists():
            self._run("apt-get", "-qq", "download", f"{package}:{arch}={version}")
        if not path.exists():
            raise NotToBeHad(f"{path.name} was not downloaded")
        return path


def extract(deb, to):
    """Unpacks a package without running anything of it."""
    to.mkdir(parents=True, exist_ok=True)
    subprocess.run(["dpkg-deb", "-x", deb, to], check=True, env={**os.environ, "LC_ALL": "C"})
