"""Tar archives and OCI layouts whose bytes depend on nothing but what is in them and the given time."""

import gzip
import hashlib
import io
import json
import pathlib
import tarfile


class Tar:
    """A tar archive that grows in memory. Everything belongs to root."""

    def __init__(self, epoch: int):
        self.epoch = epoch
        self.bytes = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.bytes, mode="w", format=tarfile.GNU_FORMAT)
        self.directories: set[str] = set()

    def directory(self, name: str, mode: int = 0o755) -> None:
        for path in [*reversed(pathlib.PurePath(name).parents[:-1]), pathlib.PurePath(name)]:
            if str(path) not in self.directories:
                self.directories.add(str(path))
                self.add(f"{path}/", tarfile.DIRTYPE, mode if str(path) == name else 0o755, b"")

    def file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        if (parent := str(pathlib.PurePath(name).parent)) != ".":
            self.directory(parent)
        self.add(name, tarfile.REGTYPE, mode, content)

    def add(self, name: str, kind: bytes, mode: int, content: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.size, info.mtime = kind, mode, len(content), self.epoch
        info.uname = info.gname = "root"
        self.tar.addfile(info, io.BytesIO(content))

    def tree(self, root: pathlib.Path, under: str) -> None:
        """All files below a folder. What its owner may execute, everybody may."""
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            self.file(f"{under}{path.relative_to(root)}", path.read_bytes(), mode)

    def done(self) -> bytes:
        self.tar.close()
        return self.bytes.getvalue()


def compressed(content: bytes, epoch: int) -> bytes:
    return gzip.compress(content, 9, mtime=epoch)


def image(layers: dict[str, bytes], config: dict, name: str, epoch_text: str, epoch: int) -> bytes:
    """An OCI layout as a tar archive: `layers` has the only layer, a tar archive, of each architecture as Go calls it."""
    blobs: dict[str, bytes] = {}

    def stored(content: bytes, kind: str, **more) -> dict:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content), **more}

    def as_json(value: dict) -> bytes:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    manifests = []
    for arch, layer in sorted(layers.items()):
        rootfs = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}
        machine = {"architecture": arch, "os": "linux"}
        about = {**machine, "created": epoch_text, "config": config, "rootfs": rootfs}
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": stored(as_json(about), "config.v1+json"),
            "layers": [stored(compressed(layer, epoch), "layer.v1.tar+gzip")],
        }
        manifests.append(stored(as_json(manifest), "manifest.v1+json", platform=machine))
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests}
    top = stored(as_json(index), "index.v1+json", annotations={"org.opencontainers.image.ref.name": name})
    layout = Tar(epoch)
    layout.file("oci-layout", as_json({"imageLayoutVersion": "1.0.0"}))
    layout.file("index.json", as_json({"schemaVersion": 2, "manifests": [top]}))
    for digest, content in sorted(blobs.items()):
        layout.file(f"blobs/sha256/{digest}", content)
    return layout.done()
