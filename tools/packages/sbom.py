"""What is in the binary, as CycloneDX: the crates that it is linked from, as cargo resolves them."""

import json
import pathlib
import subprocess
import tomllib

PROGRAM = "mitra-app"


def linked(top: pathlib.Path, target: str) -> set[tuple[str, str]]:
    """Names and versions of what gets into the binary: no build scripts, no macros, no features that only tests have."""
    words = ["cargo", "tree", "--locked", "--package", PROGRAM, "--target", target, "--edges", "normal,no-proc-macro",
             "--prefix", "none", "--format", "{p}"]
    text = subprocess.run(words, cwd=top, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {(line.split()[0], line.split()[1].removeprefix("v")) for line in text.splitlines() if line}


def sbom(top: pathlib.Path, targets: list[str], time: str) -> bytes:
    platforms = [word for target in targets for word in ("--filter-platform", target)]
    output = subprocess.run(["cargo", "metadata", "--locked", "--format-version", "1", *platforms], cwd=top, check=True,
                            stdout=subprocess.PIPE).stdout
    metadata = json.loads(output)
    found = set[tuple[str, str]]().union(*(linked(top, target) for target in targets))
    packages = {p["id"]: p for p in metadata["packages"] if (p["name"], p["version"]) in found}
    lock = tomllib.loads((top / "Cargo.lock").read_text())
    checksums = {(p["name"], p["version"]): p["checksum"] for p in lock["package"] if "checksum" in p}
    root = next(id for id, package in packages.items() if package["name"] == PROGRAM)
    needs = {node["id"]: [d["pkg"] for d in node["deps"] if any(k["kind"] is None for k in d["dep_kinds"])]
             for node in metadata["resolve"]["nodes"]}

    def reference(package: str) -> str:
        return f"pkg:cargo/{packages[package]['name']}@{packages[package]['version']}"

    def component(package: str) -> dict:
        about = packages[package]
        one = {"type": "library", "bom-ref": reference(package), "name": about["name"], "version": about["version"]}
        if about["license"]:
            one["licenses"] = [{"expression": about["license"].replace("/", " OR ")}]
        if checksum := checksums.get((about["name"], about["version"])):
            one |= {"purl": reference(package), "hashes": [{"alg": "SHA-256", "content": checksum}]}
        return one

    whole = component(root) | {"type": "application", "name": "mitra"}
    rest = sorted(set(packages) - {root}, key=reference)
    return json.dumps({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": time, "component": whole},
        "components": [component(package) for package in rest],
        "dependencies": [{"ref": reference(package), "dependsOn": sorted(reference(d) for d in needs[package] if d in packages)}
                         for package in [root, *rest]],
    }, indent=1).encode() + b"\n"
