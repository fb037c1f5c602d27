#!/usr/bin/env python3
"""Looks at what `make packages` has made, as root on Debian: `tools/packages/check.py OUTPUT`. `make test-packages` calls it.

The deb goes through its life in a root of its own; OUTPUT/older has the same of a lower version. Static binaries run in roots
that have nothing else, those for arm64 emulated. Nothing here boots systemd: units in a machine that does are looked at by `make matrix`.
"""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import platform
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator

TOP = pathlib.Path(__file__).resolve().parents[2]
CAPTURE = TOP / "crates/app/tests/cases/page-cache-flood"
# What the whole of an incident has to take at most: installing, a recording, and its explanation.
FIRST_ANSWER_S = 20.0
DEMO_S = 1.0
OWNED = ["usr/bin/mitra", "usr/lib/systemd/system/mitra.service", "usr/lib/systemd/system/mitra-index.service",
         "usr/lib/systemd/system/mitra-notify.service", "usr/lib/systemd/system/mitra-send.service",
         "usr/lib/systemd/system/mitra-upload.service", "usr/lib/systemd/system/mitra-dbus.service",
         "usr/share/dbus-1/system.d/org.mitra.Mitra1.conf", "usr/share/polkit-1/actions/org.mitra.Mitra1.policy",
         "usr/lib/sysusers.d/mitra.conf", "usr/share/man/man1/mitra.1.gz", "usr/share/man/man1/mitra-explain.1.gz",
         "usr/share/bash-completion/completions/mitra", "usr/share/zsh/vendor-completions/_mitra",
         "usr/share/fish/vendor_completions.d/mitra.fish", "etc/mitra/mitra.toml"]
ENABLED = "etc/systemd/system/multi-user.target.wants/mitra.service"


def run(*words: str | pathlib.Path, **more) -> str:
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          stdin=subprocess.DEVNULL, check=False, **more)
    assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def inside(root: pathlib.Path, *words: str) -> str:
    """In the root, with processes and mounts of its own."""
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    return run("unshare", "--mount", "--pid", "--fork", "--kill-child", f"--root={root}", *words, env=env)


@contextlib.contextmanager
def mounted(root: pathlib.Path, *paths: str) -> Iterator[None]:
    try:
        for path in paths:
            run("mount", "--rbind", path, root / path[1:])
            run("mount", "--make-rslave", root / path[1:])
        yield
    finally:
        for path in paths:
            subprocess.run(["umount", "-l", root / path[1:]], check=False)


def debian(work: pathlib.Path, include: str) -> pathlib.Path:
    """The release of this machine, since it has the keys of that one."""
    root = work / f"debian-{include}"
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    run("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={include}", suite, root)
    return root


def fresh(root: pathlib.Path, name: str) -> pathlib.Path:
    copy = root.with_name(name)
    run("cp", "-a", root, copy)
    return copy


def install(root: pathlib.Path, deb: pathlib.Path, *options: str) -> str:
    shutil.copy(deb, root / "tmp/mitra.deb")
    said = inside(root, "dpkg", *options, "-i", "/tmp/mitra.deb")
    (root / "tmp/mitra.deb").unlink()
    assert "warning" not in said.lower() and "error" not in said.lower(), said
    return said


def names(root: pathlib.Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*mitra*") if "tmp/" not in str(path.relative_to(root))}


def version_of(root: pathlib.Path) -> str:
    return inside(root, "dpkg-query", "-W", "-f", "${Version} ${Status}", "mitra")


def life(root: pathlib.Path, older: pathlib.Path, deb: pathlib.Path, has_systemd: bool) -> str:
    """Installed, upgraded, removed, purged."""
    install(root, older)
    for path in OWNED:
        assert (root / path).is_file(), f"{path} is missing"
    assert "mitra:" in (root / "etc/passwd").read_text(), "no user"
    assert "mitra:" in (root / "etc/group").read_text(), "no group"
    assert (root / ENABLED).is_symlink(), "the recorder is not enabled"
    assert not (root / ENABLED).with_name("mitra-index.service").is_symlink(), "the indexer is enabled"
    inside(root, "/usr/bin/mitra", "rules", "check", "/etc/mitra/mitra.toml")
    inside(root, "dpkg", "--verify", "mitra")
    # What belongs to whoever runs the machine.
    config, kept = root / "etc/mitra/mitra.toml", root / "var/lib/mitra/kept"
    config.write_text(mine := config.read_text() + "# mine\n")
    kept.parent.mkdir()
    kept.write_text("recorded")
    if has_systemd:
        inside(root, "systemctl", "disable", "mitra.service")
    before = version_of(root)
    install(root, deb)
    after = version_of(root)
    assert before != after and "install ok installed" in after, f"{before}, then {after}"
    assert config.read_text() == mine, "the configuration was replaced"
    assert (root / ENABLED).is_symlink() != has_systemd, "what somebody has disabled is enabled again, or the other way round"
    inside(root, "dpkg", "-r", "mitra")
    assert not (root / "usr/bin/mitra").exists(), "removed, and still there"
    assert config.read_text() == mine and kept.read_text() == "recorded", "removing takes more than the programs"
    install(root, deb)
    inside(root, "dpkg", "-P", "mitra")
    left = names(root)
    assert not left, f"purged, and these are left: {sorted(left)}"
    return f"{before.split()[0]} upgraded to {after.split()[0]}, removed, purged"


def first_answer(root: pathlib.Path, deb: pathlib.Path) -> str:
    """From a root without Mitra to an incident of this machine that is explained: four programs for each CPU."""
    started = time.monotonic()
    install(root, deb)
    with mounted(root, "/proc", "/sys"):
        chroot = ["chroot", str(root)]
        recorder = subprocess.Popen([*chroot, "mitra", "record", "--archive", "/var/tmp/archive", "--no-arm"],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        hogs = []
        try:
            time.sleep(6)
            loop = [*chroot, "sh", "-c", "while :; do :; done"]
            hogs = [subprocess.Popen(loop) for _ in range(4 * (os.cpu_count() or 1))]
            time.sleep(6)
        finally:
            for process in hogs:
                process.kill()
            recorder.terminate()
            for process in [*hogs, recorder]:
                process.wait()
        report = json.loads(run(*chroot, "mitra", "explain", "--archive", "/var/tmp/archive", "--json"))
    took = time.monotonic() - started
    # Whatever else goes on here, the hogs have to be among the causes.
    found = {cause["condition"]: cause["statement"] for cause in (one["root_cause"] for one in report["incidents"]) if cause}
    hogs_are = [statement for condition, statement in found.items() if condition.startswith(("cpu-", "runqueue-"))]
    assert hogs_are, f"no incident of the CPU, but {found}"
    assert took < FIRST_ANSWER_S, f"{took:.1f} s"
    return f"{took:.1f} s, of which 12 s are the recording: {hogs_are[0]}"


def empty_root(work: pathlib.Path, archive: pathlib.Path, emulator: str | None) -> str:
    """Nothing is there but the program and what it is asked about."""
    with tempfile.TemporaryDirectory(dir=work) as name:
        root = pathlib.Path(name)
        with tarfile.open(archive) as tar:
            member = next(m for m in tar.getmembers() if m.name.endswith("/bin/mitra"))
            member.name = "mitra"
            tar.extract(member, root, filter="data")
        shutil.copytree(CAPTURE, root / "case")
        words = ["/mitra"]
        if emulator:
            shutil.copy(shutil.which(emulator), root / "qemu")
            words = ["/qemu", "/mitra"]
        started = time.monotonic()
        demo = run("chroot", root, *words, "demo")
        took = time.monotonic() - started
        assert "ROOT CAUSE" in demo.upper() or "cause" in demo.lower(), demo
        assert emulator or took < DEMO_S, f"demo took {took:.2f} s"
        report = run("chroot", root, *words, "explain", "/case")
        assert len(report.splitlines()) > 5, report
        run("chroot", root, *words, "--version")
        return f"demo {took:.2f} s{' emulated' if emulator else ''}; explain"


def checked_image(work: pathlib.Path, archive: pathlib.Path) -> str:
    """The digests by hand, the rest by skopeo, which also takes it apart; and the program in its only layer."""
    with tempfile.TemporaryDirectory(dir=work) as name:
        top = pathlib.Path(name)
        with tarfile.open(archive) as tar:
            tar.extractall(top / "layout", filter="data")
        blobs = list((top / "layout/blobs/sha256").iterdir())
        for blob in blobs:
            assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name, blob
        arches = []
        for arch in ("amd64", "arm64"):
            about = json.loads(run("skopeo", "--override-arch", arch, "--override-os", "linux", "inspect", f"oci:{top}/layout"))
            arches.append(about["Architecture"])
        assert arches == ["amd64", "arm64"], arches
        run("skopeo", "--insecure-policy", "--override-arch", "amd64", "copy", f"oci:{top}/layout", f"dir:{top}/dir")
        layer = json.loads((top / "dir/manifest.json").read_text())["layers"][0]["digest"].split(":")[1]
        (top / "root").mkdir()
        run("tar", "-C", top / "root", "-xzf", top / "dir" / layer)
        run("chroot", top / "root", "/usr/bin/mitra", "demo")
        return f"{len(blobs)} blobs, {' and '.join(arches)}; skopeo copies it, demo runs in its layer"


def checked_rpm(work: pathlib.Path, rpm: pathlib.Path, deb: pathlib.Path) -> str:
    run("rpm", "-K", "--nosignature", rpm)
    listed = {line for line in run("rpm", "-qlp", "--nosignature", rpm).splitlines() if line.startswith("/")}
    lines = [line.split() for line in run("dpkg-deb", "-c", deb).splitlines()]
    in_deb = {line[5][1:] for line in lines if not line[0].startswith("d")}
    zsh = {f"/usr/share/zsh/{place}/_mitra" for place in ("vendor-completions", "site-functions")}
    own = {path for path in in_deb - zsh if not path.endswith(("/changelog.gz", "/copyright"))}
    assert own <= listed, f"not in the rpm: {sorted(own - listed)}"
    assert "/etc/mitra/mitra.toml" in run("rpm", "-qcp", "--nosignature", rpm), "the configuration is none"
    with tempfile.TemporaryDirectory(dir=work) as root:
        run("rpm", "--root", root, "--dbpath", "/var/lib/rpm", "-i", "--nodeps", "--noscripts", "--nosignature",
            "--ignorearch", rpm)
        if "x86_64" in rpm.name:
            run("chroot", root, "/usr/bin/mitra", "--version")
    return f"{len(listed)} paths"


def built_again(work: pathlib.Path, out: pathlib.Path) -> str:
    """A clone at another path, with another folder for what is built, by somebody with another umask and time zone."""
    checkout = work / "elsewhere/checkout"
    run("git", "clone", "--quiet", TOP, checkout)
    # The page of `mitra serve` is in the binary where it has been built.
    if (TOP / "web/dist").is_dir():
        shutil.copytree(TOP / "web/dist", checkout / "web/dist")
    env = {**os.environ, "CARGO_TARGET_DIR": str(work / "elsewhere/built"), "TZ": "Asia/Tokyo"}
    run(checkout / "tools/packages/build.py", work / "again", env=env, umask=0o077)
    same = 0
    for path in sorted(path for path in out.iterdir() if path.is_file()):
        assert path.read_bytes() == (work / "again" / path.name).read_bytes(), f"{path.name} has other bytes"
        same += 1
    return f"{same} files have the same bytes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--reproduce", action="store_true", help="build everything a second time, elsewhere, and compare")
    args = parser.parse_args()
    out = args.output.resolve()
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        print("skipped: needs root and mmdebstrap")
        return

    def one(pattern: str) -> pathlib.Path:
        found = list(out.glob(pattern))
        assert len(found) == 1, f"{pattern}: {found}"
        return found[0]

    deb, older = one("*_amd64.deb"), one("older/*_amd64.deb")

    def say(what: str, said: str) -> None:
        print(f"ok  {what}: {said}", flush=True)

    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="mitra-packages-") as name:
        work = pathlib.Path(name)
        run("sha256sum", "-c", "--strict", "SHA256SUMS", cwd=out)
        say("checksums", "fit")
        for arch, emulator in (("x86_64", None), ("aarch64", "qemu-aarch64-static")):
            say(f"{arch} in an empty root", empty_root(work, one(f"mitra-*-{arch}.tar.gz"), emulator))
        say("image", checked_image(work, one("*-oci.tar")))
        for arch, other in (("x86_64", "amd64"), ("aarch64", "arm64")):
            say(f"rpm {arch}", checked_rpm(work, one(f"*.{arch}.rpm"), one(f"*_{other}.deb")))
        bare = debian(work, "init-system-helpers")
        say("deb without systemd", life(fresh(bare, "bare"), older, deb, has_systemd=False))
        say("first answer by the deb", first_answer(fresh(bare, "first"), deb))
        say("deb with systemd", life(debian(work, "systemd"), older, deb, has_systemd=True))
        if args.reproduce:
            say("built again", built_again(work, out))


if __name__ == "__main__":
    main()
