#!/usr/bin/env python3
"""Builds what is given to others, for x86-64 and arm64: `tools/packages/build.py OUTPUT`. `make packages` calls it.

One static binary for each architecture is in all of it: deb, rpm, an archive for /usr/local, an image of containers. What
is installed with it is what tools/install.sh installs. Beside them: lines for backtraces, an SBOM, checksums.

The time of everything is that of the last commit, and no path of this machine gets into the binary: the same commit built
elsewhere, by the same compilers, has the same bytes. `--version V` makes packages of another version, for a test of upgrades.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import subprocess
import tomllib

from archive import Tar, compressed, image
from sbom import sbom

TOP = pathlib.Path(__file__).resolve().parents[2]
HERE = TOP / "tools/packages"
# As the kernel, Debian, and Go call an architecture. The first is the one whose binary runs here: it writes the pages.
ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}
CONFIG = "/etc/mitra/mitra.toml"
ABOUT = {
    "name": "mitra",
    "platform": "linux",
    "section": "admin",
    "priority": "optional",
    "maintainer": "The Mitra developers <mitra-recorder@users.noreply.github.com>",
    "description": "flight recorder and root-cause investigator\n"
                   "Records what the kernel counts, once a second, and explains incidents: what\n"
                   "happened, who caused it, what it cost, and by which steps.",
    "license": "Apache-2.0",
}
# The host that it was built on would stand in an rpm.
FORMAT = {"deb": {"compression": "xz"}, "rpm": {"compression": "zstd", "group": "System/Monitoring", "buildhost": "localhost"}}


def run(*words: str | pathlib.Path, **more) -> None:
    subprocess.run([str(word) for word in words], check=True, **more)


def output(*words: str) -> str:
    return subprocess.run(words, cwd=TOP, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def target(arch: str) -> str:
    return f"{arch}-unknown-linux-musl"


def compiled(arches: list[str], epoch: int) -> dict[str, pathlib.Path]:
    """The binaries, with debug information."""
    built = pathlib.Path(os.environ["CARGO_TARGET_DIR"])
    cargo_home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    rust = output("rustc", "--print", "sysroot")
    # The last one that fits counts.
    places = {TOP: "/mitra", built: "/target", cargo_home: "/cargo", rust: "/rust", os.environ["MITRA_VENV"]: "/venv"}
    rustflags = [f"--remap-path-prefix={path}={name}" for path, name in places.items()]
    cflags = [f"-ffile-prefix-map={path}={name}" for path, name in places.items()]
    env = {
        **os.environ,
        "SOURCE_DATE_EPOCH": str(epoch),
        "CARGO_INCREMENTAL": "0",
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(rustflags),
    }
    for name in map(target, arches):
        small, large = name.replace("-", "_"), name.replace("-", "_").upper()
        env |= {
            f"CC_{small}": str(HERE / "cc.sh"),
            f"CFLAGS_{small}": " ".join(cflags),
            f"AR_{small}": "ar",
            f"CARGO_TARGET_{large}_LINKER": "rust-lld",
        }
    targets = [word for arch in arches for word in ("--target", target(arch))]
    run("cargo", "build", "--release", "--locked", "--bin", "mitra", *targets, cwd=TOP, env=env)
    return {arch: built / target(arch) / "release/mitra" for arch in arches}


def staged(binary: pathlib.Path, runs: pathlib.Path, stage: pathlib.Path, prefix: str, zsh: str) -> pathlib.Path:
    """What `make install` installs."""
    # Rust's own objcopy knows both architectures. It does not find its library by itself.
    rust = output("rustc", "--print", "sysroot")
    objcopy = f"{rust}/lib/rustlib/{output('rustc', '--print', 'host-tuple')}/bin/rust-objcopy"
    run("rm", "-rf", stage)
    env = {**os.environ, "OBJCOPY": objcopy, "LD_LIBRARY_PATH": f"{rust}/lib", "PAGES_FROM": str(runs), "ZSH_FUNCTIONS": zsh}
    run(TOP / "tools/install.sh", binary, stage, prefix, f"{prefix}/lib/systemd/system", env=env, stdout=subprocess.DEVNULL)
    for page in (stage / prefix[1:] / "share/man/man1").iterdir():
        pressed(page, page.with_name(f"{page.name}.gz"))
        page.unlink()
    return stage


def pressed(file: pathlib.Path, to: pathlib.Path) -> None:
    to.write_bytes(compressed(file.read_bytes(), int(os.environ["SOURCE_DATE_EPOCH"])))


def scripts(kind: str) -> dict:
    names = {"deb": ("postinst", "prerm", "postrm"), "rpm": ("post", "preun", "postun")}[kind]
    return dict(zip(("postinstall", "preremove", "postremove"), (str(HERE / kind / name) for name in names)))


def package(kind: str, arch: str, version: str, epoch_text: str, stage: pathlib.Path, out: pathlib.Path) -> None:
    """By nfpm, whose configuration is YAML, and so may be JSON."""
    contents = [
        {"src": str(stage / "usr"), "dst": "/usr", "type": "tree"},
        {"src": str(TOP / "packaging/mitra.toml"), "dst": CONFIG, "type": "config|noreplace", "file_info": {"mode": 0o644}},
    ]
    about = {
        **ABOUT,
        "arch": ARCHES[arch],
        "version": version,
        "homepage": tomllib.loads((TOP / "Cargo.toml").read_text())["workspace"]["package"]["repository"],
        "mtime": epoch_text,
        "contents": contents,
        "scripts": scripts(kind),
        "umask": 0o022,
        # useradd, for a root without systemd. Names of its rpm differ, and who has rpm has systemd.
        "depends": ["passwd"] if kind == "deb" else [],
        kind: FORMAT[kind],
    }
    config = out / f"nfpm-{kind}-{arch}.yaml"
    config.write_text(json.dumps(about))
    run("nfpm", "package", "--config", config, "--packager", kind, "--target", out, stdout=subprocess.DEVNULL)
    config.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--version", help="in place of the one of Cargo.toml; only the debs are made")
    args = parser.parse_args()
    # Modes of what is staged are those in the packages, whoever builds them.
    os.umask(0o022)
    out = args.output.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for old in (path for path in out.iterdir() if path.is_file()):
        old.unlink()
    epoch = int(output("git", "log", "-1", "--format=%ct"))
    epoch_text = datetime.datetime.fromtimestamp(epoch, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch)
    venv = pathlib.Path(os.environ["MITRA_VENV"])
    os.environ["PATH"] = f"{venv / 'bin'}:{os.environ['PATH']}"
    version = args.version or tomllib.loads((TOP / "Cargo.toml").read_text())["workspace"]["package"]["version"]

    binaries = compiled(list(ARCHES), epoch)
    runs = binaries["x86_64"]
    work = out / "stage"
    layers = {}
    for arch, binary in binaries.items():
        deb = staged(binary, runs, work / arch, "/usr", "zsh/vendor-completions")
        debug = deb / "usr/bin/.debug/mitra.debug"
        lines = debug.read_bytes()
        run("rm", "-r", debug.parent)
        # Where Debian has them.
        documents = deb / "usr/share/doc/mitra"
        pressed(documents / "CHANGELOG.md", documents / "changelog.gz")
        (documents / "CHANGELOG.md").unlink()
        (documents / "copyright").write_text((documents / "NOTICE").read_text() + "\n" + (documents / "LICENSE").read_text())
        package("deb", arch, version, epoch_text, deb, out)
        if args.version:
            continue
        tar = Tar(epoch)
        tar.file(".debug/mitra.debug", lines)
        (out / f"mitra-{version}-{arch}-debug.tar.gz").write_bytes(compressed(tar.done(), epoch))
        # The same files at the places where others look for them.
        rpm = staged(binary, runs, work / arch, "/usr", "zsh/site-functions")
        run("rm", "-r", debug.parent)
        package("rpm", arch, version, epoch_text, rpm, out)
        layer = Tar(epoch)
        layer.file("usr/bin/mitra", (rpm / "usr/bin/mitra").read_bytes(), 0o755)
        layer.file(CONFIG[1:], (TOP / "packaging/mitra.toml").read_bytes())
        layer.tree(rpm / "usr/share/doc/mitra", "usr/share/doc/mitra/")
        layer.directory("tmp", 0o1777)
        layers[ARCHES[arch]] = layer.done()
        local = staged(binary, runs, work / arch, "/usr/local", "zsh/site-functions") / "usr/local"
        run("rm", "-r", local / "bin/.debug")
        tar = Tar(epoch)
        tar.tree(local, f"mitra-{version}/")
        (out / f"mitra-{version}-{arch}.tar.gz").write_bytes(compressed(tar.done(), epoch))
    run("rm", "-rf", work)
    if not args.version:
        config = {"Entrypoint": ["/usr/bin/mitra"], "Cmd": ["demo"], "Env": ["PATH=/usr/bin"]}
        (out / f"mitra-{version}-oci.tar").write_bytes(image(layers, config, version, epoch_text, epoch))
        (out / f"mitra-{version}.cdx.json").write_bytes(sbom(TOP, [target(arch) for arch in ARCHES], epoch_text))
    files = sorted(path for path in out.iterdir() if path.is_file())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / "SHA256SUMS").write_text("".join(sums))
    print("".join(sums), end="")


if __name__ == "__main__":
    main()
