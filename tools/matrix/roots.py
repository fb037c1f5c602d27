"""What the guests run on: a small Debian as an image, the same for every kernel of an architecture, and what is brought along."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess

HERE = pathlib.Path(__file__).parent
TOP = HERE.parent.parent
# Older kernels get it as well: its C library has to be as new as the one that the program was built with.
SUITE = "bookworm"
PACKAGES = ["systemd", "systemd-sysv", "udev", "dbus", "iproute2", "nftables", "fio", "mount", "kmod", "procps", "e2fsprogs",
            "python3"]
ROOT_BYTES = 1 << 30
LEFT_OUT = ["doc", "man", "locale", "info"]
UNIT = """[Unit]
Description=The checks of the kernel matrix
After=multi-user.target

[Service]
Type=oneshot
Environment=HOME=/root
ExecStart=/usr/bin/python3 -B /matrix/guest/checks.py
ExecStopPost=/bin/sh -c "sync; echo o >/proc/sysrq-trigger"
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
"""


def run(*command, **options):
    subprocess.run([str(word) for word in command], check=True, stdin=subprocess.DEVNULL, **options)


def image_of(tree, image, size, *options):
    """An ext4 image of a folder; it takes as much room as what is in it."""
    with image.open("wb") as out:
        out.truncate(size)
    run("mke2fs", "-q", "-t", "ext4", "-F", "-E", "root_owner=0:0", *options, *(["-d", tree] if tree else []), image)


def root(arch, archive, cache):
    """The image of a root file system, made once."""
    recipe = repr((SUITE, PACKAGES, LEFT_OUT, UNIT, pathlib.Path(__file__).read_text()))
    image = cache / f"root-{arch}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}.img"
    if not image.exists():
        for old in cache.glob(f"root-{arch}-*"):
            old.unlink()
        tree = cache / f"root-{arch}"
        shutil.rmtree(tree, ignore_errors=True)
        if arch == "amd64":
            _bootstrap(arch, "essential", ",".join(PACKAGES), tree, archive)
        else:
            _bootstrap_foreign(arch, tree, archive, cache)
        _finish(tree)
        half = image.with_suffix(".half")
        image_of(tree, half, ROOT_BYTES)
        shutil.rmtree(tree)
        half.rename(image)
    return image


def _bootstrap(arch, variant, packages, tree, archive):
    unwanted = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEFT_OUT]
    run("mmdebstrap", "--quiet", "--mode=root", f"--variant={variant}", f"--architectures={arch}", f"--include={packages}",
        *unwanted, SUITE, tree, archive.sources[SUITE])


def _bootstrap_foreign(arch, tree, archive, cache):
    """Packages of another architecture are only unpacked, since their scripts cannot run here. What those would have written
    is the same everywhere, and taken from this machine's."""
    own = cache / "root-amd64"
    shutil.rmtree(own, ignore_errors=True)
    _bootstrap("amd64", "essential", ",".join(PACKAGES), own, archive)
    status = (own / "var/lib/dpkg/status").read_text()
    names = re.findall(r"^Package: (\S+)$", status, re.MULTILINE)

    _bootstrap(arch, "extract", ",".join(names), tree, archive)
    for folder in ["bin", "sbin", "lib"]:
        run("cp", "-a", f"{tree / folder}/.", tree / "usr" / folder)
        shutil.rmtree(tree / folder)
        (tree / folder).symlink_to(f"usr/{folder}")
    shutil.rmtree(tree / "etc")
    run("cp", "-a", own / "etc", tree / "etc")
    for path in [*(own / "usr/bin").iterdir(), *(own / "usr/sbin").iterdir()]:
        link = tree / path.relative_to(own)
        if path.is_symlink() and not os.path.lexists(link):
            link.symlink_to(os.readlink(path))
    # It lists libraries of the other architecture; without it they are looked for where they are.
    (tree / "etc/ld.so.cache").unlink(missing_ok=True)
    shutil.rmtree(own)


def _finish(tree):
    for folder in ["matrix", "work"]:
        (tree / folder).mkdir(exist_ok=True)
    (tree / "etc/hostname").write_text("matrix\n")
    (tree / "etc/fstab").write_text("")
    (tree / "etc/machine-id").write_text("6d61747269786d61747269786d617472\n")
    units = tree / "etc/systemd/system"
    (units / "matrix.service").write_text(UNIT)
    wants = units / "matrix.target.wants"
    wants.mkdir(exist_ok=True)
    # What waits for a network, a person or a timer has nothing to do here.
    for name in ["systemd-networkd-wait-online.service", "serial-getty@.service", "getty.target", "systemd-resolved.service",
                 "systemd-timesyncd.service", "apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "fstrim.timer",
                 "dpkg-db-backup.timer", "e2scrub_reap.service"]:
        (units / name).unlink(missing_ok=True)
        (units / name).symlink_to("/dev/null")
    shutil.rmtree(wants)
    (units / "multi-user.target.wants").mkdir(exist_ok=True)
    (units / "graphical.target.wants").mkdir(exist_ok=True)
    link = units / "graphical.target.wants/matrix.service"
    link.unlink(missing_ok=True)
    link.symlink_to("/etc/systemd/system/matrix.service")


def payload(arch, mitra, lab, folder):
    """The image of what is tested: programs, the scripts of the guest, what `tools/install.sh` installs."""
    tree = folder / "payload"
    shutil.rmtree(tree, ignore_errors=True)
    (tree / "bin").mkdir(parents=True)
    strip = {"amd64": "strip", "arm64": "aarch64-linux-gnu-strip"}[arch]
    for program in [mitra, lab]:
        run(strip, "-o", tree / "bin" / program.name, program)
        (tree / "bin" / program.name).chmod(0o755)
    shutil.copytree(HERE / "guest", tree / "guest", ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "source/tools").mkdir(parents=True)
    shutil.copy(TOP / "tools/install.sh", tree / "source/tools/install.sh")
    for name in ["packaging", "docs"]:
        shutil.copytree(TOP / name, tree / "source" / name)
    for name in ["LICENSE", "NOTICE", "CHANGELOG.md"]:
        shutil.copy(TOP / name, tree / "source" / name)
    # They are stripped already, and there is no such tool in the guest: it only makes the file that it is to make.
    (tree / "strip").mkdir()
    (tree / "strip/objcopy").write_text('#!/bin/sh\nfor last; do :; done\n[ -e "$last" ] || : >"$last"\n')
    (tree / "strip/objcopy").chmod(0o755)
    image = folder / "payload.img"
    image_of(tree, image, 256 << 20, "-N", "4096")
    shutil.rmtree(tree)
    return image
