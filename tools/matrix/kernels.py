"""The kernels: which there are, and each as an image with an initramfs that holds the few modules that are needed."""

import dataclasses
import lzma
import pathlib
import re
import shutil
import subprocess

from archive import NotToBeHad, extract

# Loaded before the root is mounted, in this order; where they are built in, there is nothing to load.
EARLY = ["virtio_pci", "virtio_mmio", "virtio_blk", "virtio_rng", "crc32c_generic", "crc32c_intel", "ext4"]
# What the checks make trouble with. Whatever these depend on comes along.
LATE = ["loop", "zram", "lzo", "lzo_rle", "zstd", "lz4", "veth", "dummy", "sch_netem", "sch_tbf", "sch_fq_codel", "nf_tables",
        "nft_numgen", "nft_meta", "nft_ct", "nft_counter", "nft_limit", "nf_conntrack", "inet_diag", "tcp_diag", "udp_diag",
        "unix_diag", "netlink_diag", "raw_diag", "fuse", "autofs4", "tun", "dm_mod", "overlay", "ipv6"]
GUEST = pathlib.Path(__file__).parent / "guest"


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One line of the table."""

    name: str
    arch: str
    # How the version begins; empty: the newest that there is.
    series: str
    # What is process 1: `systemd`, or `init`, which only starts the checks.
    process1: str
    # The package that stands for the newest of a series.
    package: str
    # Whether the kernel says what its types are (BTF), without which no BPF program can be fitted to it.
    btf: bool = True


KERNELS = [
    Kernel("amd64-5.10", "amd64", "5.10", "init", "linux-image-amd64"),
    Kernel("amd64-6.1", "amd64", "6.1", "systemd", "linux-image-amd64"),
    Kernel("amd64-6.12", "amd64", "6.12", "init", "linux-image-amd64"),
    Kernel("amd64-newest", "amd64", "", "systemd", "linux-image-amd64"),
    # A kernel that runs as a process of this machine. It has neither BTF nor tracepoints: none of Debian's others lacks them.
    Kernel("amd64-nobtf", "amd64", "6.1um", "init", "user-mode-linux", btf=False),
    Kernel("arm64-5.10", "arm64", "5.10", "init", "linux-image-arm64"),
    Kernel("arm64-6.1", "arm64", "6.1", "init", "linux-image-arm64"),
    Kernel("arm64-6.12", "arm64", "6.12", "systemd", "linux-image-arm64"),
    Kernel("arm64-newest", "arm64", "", "init", "linux-image-arm64"),
]


@dataclasses.dataclass
class Image:
    """A kernel that can be started."""

    version: str
    program: pathlib.Path
    initramfs: pathlib.Path


def prepare(kernel, archive, cache):
    """Fetches a kernel and makes its initramfs, unless both are there."""
    problem = NotToBeHad(f"no {kernel.package} {kernel.series or 'at all'} at the mirror")
    for version in archive.versions(kernel.package, kernel.arch):
        if not version.startswith(f"{kernel.series}." if kernel.series[-1:].isdigit() else kernel.series):
            continue
        try:
            return _prepare(kernel, version, archive, cache)
        except NotToBeHad as error:
            # Listed, and deleted at the mirror: an older one may still be there.
            problem = error
    raise problem


def _prepare(kernel, version, archive, cache):
    done = cache / "kernels" / f"{kernel.package}-{version}-{kernel.arch}"
    if not done.exists():
        half = done.with_name(f"{done.name}.half")
        shutil.rmtree(half, ignore_errors=True)
        _unpack(kernel, version, archive, half)
        half.rename(done)
    # The scripts of the initramfs change more often than the kernel.
    tree = done / "initramfs"
    shutil.copy(GUEST / "initramfs.sh", tree / "init")
    (tree / "init").chmod(0o755)
    image = done / "initramfs.cpio"
    names = subprocess.run(["find", ".", "-print0"], cwd=tree, check=True, capture_output=True).stdout
    with image.open("wb") as out:
        subprocess.run(["cpio", "--null", "-o", "-H", "newc", "--quiet"], cwd=tree, input=names, stdout=out, check=True)
    return Image((done / "version").read_text(), done / "kernel", image)


def _unpack(kernel, version, archive, to):
    packages = [(kernel.package, version)]
    seen = []
    # The package that stands for the newest depends on the kernel, newer ones on their parts.
    while packages:
        name, wanted = packages.pop()
        deb = archive.download(name, kernel.arch, wanted)
        if deb in seen:
            continue
        seen.append(deb)
        packages += [(n, v) for n, v in archive.depends(name, kernel.arch, wanted) if v and n.startswith("linux-")]
    whole = to / "whole"
    for deb in seen:
        extract(deb, whole)
        deb.unlink()
    kernels = [p for p in whole.rglob("*") if re.match(r"vmlinuz|linux\.uml$", p.name) and p.is_file() and not p.is_symlink()]
    modules = next((p.parent for p in sorted(whole.rglob("kernel")) if p.parent.parent.name == "modules"), None)
    if not kernels or modules is None:
        raise NotToBeHad(f"{kernel.package} {version} has no kernel, or no modules, where they are looked for")
    kernels[0].rename(to / "kernel")
    (to / "version").write_text(modules.name)
    _reduce(modules, to / "initramfs")
    busybox = to / "busybox"
    extract(archive.download("busybox-static", kernel.arch), busybox)
    (to / "initramfs/bin").mkdir()
    program = next(p for p in busybox.rglob("busybox") if p.is_file() and p.parent.name == "bin")
    program.rename(to / "initramfs/bin/busybox")
    shutil.rmtree(whole)
    shutil.rmtree(busybox)


def _reduce(modules, tree):
    """Copies the modules that are wanted and what they depend on, as plain files, into a tree that `modprobe` understands."""
    version = modules.name
    files = {p.name.split(".")[0].replace("-", "_"): p for p in modules.rglob("*.ko*")}
    needs = {}
    order = []

    def want(name):
        path = files.get(name)
        if path is None or name in needs:
            return
        data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        depends = re.search(rb"\0depends=([^\0]*)\0", data)
        needs[name] = [n.replace("-", "_") for n in depends.group(1).decode().split(",") if n] if depends else []
        for other in needs[name]:
            want(other)
        to = tree / "lib/modules" / version / "kernel" / f"{name}.ko"
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(data)
        order.append(name)

    for name in EARLY:
        want(name)
    (tree / "lib/modules" / version).mkdir(parents=True, exist_ok=True)
    (tree / "early").write_text("".join(f"/lib/modules/{version}/kernel/{name}.ko\n" for name in order))
    for name in LATE:
        want(name)
    for name in ["modules.builtin", "modules.order", "modules.builtin.modinfo"]:
        if (modules / name).exists():
            shutil.copy(modules / name, tree / "lib/modules" / version)
    subprocess.run(["depmod", "-b", tree, version], check=True, stderr=subprocess.DEVNULL)
