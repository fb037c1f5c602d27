#!/usr/bin/env python3
"""Asserts which crate may use which, which top module of `app`, and which floor of the
diagnosis, so that data keeps flowing in one direction.

Reads `cargo metadata` and the sources of `app` and `diagnose`; the rules are the tables below and are explained in
ARCHITECTURE.md. A new crate or module is an error until its line is here. Before it looks at the workspace the
script checks itself: each rule has a made-up workspace that breaks it and must be caught.
"""

import graphlib
import json
import pathlib
import re
import subprocess
import sys

# What each crate may use of the workspace. Tests (dev-dependencies) keep to the same rule.
MAY_USE = {
    "mitra-model": set(),
    "mitra-parse": {"mitra-model"},
    "mitra-collect": {"mitra-model", "mitra-parse"},
    "mitra-archive": {"mitra-model"},
    "mitra-diagnose": {"mitra-model"},
    "mitra-rules": {"mitra-model"},
    "mitra-ask": set(),
    "mitra-confine": set(),
    "mitra-http": set(),
    "mitra-inspect": {"mitra-model", "mitra-parse", "mitra-confine"},
    "mitra-notify": {"mitra-model", "mitra-confine", "mitra-http"},
    "mitra-send": {"mitra-model", "mitra-http"},
    "mitra-load": {"mitra-http", "mitra-parse"},
    "mitra-search": {"mitra-model", "mitra-parse", "mitra-confine", "mitra-http"},
    "mitra-app": {
        "mitra-model",
        "mitra-parse",
        "mitra-collect",
        "mitra-archive",
        "mitra-diagnose",
        "mitra-rules",
        "mitra-inspect",
        "mitra-search",
        "mitra-ask",
        "mitra-confine",
        "mitra-http",
        "mitra-notify",
        "mitra-send",
        "mitra-load",
    },
    # Outside of the product: starts the binary, and reads archives for the baselines it is compared with.
    "mitra-lab": {"mitra-model", "mitra-archive"},
    # Gives bytes to whatever reads some.
    "mitra-fuzz": {
        "mitra-model",
        "mitra-parse",
        "mitra-archive",
        "mitra-rules",
        "mitra-inspect",
        "mitra-search",
        "mitra-ask",
    },
}

# Edges that only tests need, with the reason.
TESTS_MAY_USE: dict[tuple[str, str], str] = {
    ("mitra-app", "mitra-fuzz"): "the server is fed with damaged requests; nothing uses app, so that the target is there",
    ("mitra-lab", "mitra-diagnose"): "shipped recordings are explained without the binary and without root",
    ("mitra-lab", "mitra-rules"): "the built-in suspicions are raised on shipped recordings, or are not",
}

# Dependencies that are heavy to build or shape the code around them stay in the crate that exists for them.
OWNERS = {
    "aya": {"mitra-collect"},
    "zstd": {"mitra-app", "mitra-archive", "mitra-collect", "mitra-search"},
    "ureq": {"mitra-http"},
    "prost": {"mitra-app", "mitra-send"},
    "hdrhistogram": {"mitra-load"},
    "snap": {"mitra-send"},
    "landlock": {"mitra-confine"},
    "seccompiler": {"mitra-confine"},
    "promql-parser": {"mitra-ask"},
    "hyper": {"mitra-app", "mitra-load"},
    "tokio": {"mitra-app", "mitra-load", "mitra-send"},
    "rskafka": {"mitra-send"},
    "tokio-rustls": {"mitra-app", "mitra-load"},
    "zbus": {"mitra-app"},
    "rustls": {"mitra-http"},
    "blazesym": {"mitra-inspect"},
    "clap": {"mitra-app", "mitra-lab"},
    "ratatui": {"mitra-app"},
    "crossterm": {"mitra-app"},
    "parquet": {"mitra-app"},
    "arrow": {"mitra-app"},
    # Libraries say what went wrong with a type of their own.
    "anyhow": {"mitra-app", "mitra-lab"},
}

# Crates that only compute: no dependency that reads, writes or talks.
PURE = {"mitra-model", "mitra-parse", "mitra-diagnose", "mitra-rules", "mitra-ask"}
IMPURE = {"rustix", "libc", "nix", "memmap2", "tokio", "mio", "hyper", "reqwest", "ureq", "walkdir"}

# Crates whose own clippy.toml lifts the ban on ambient file access.
MAY_TOUCH_FILES = {"mitra-confine", "mitra-http", "mitra-notify", "mitra-send", "mitra-load", "mitra-collect", "mitra-archive", "mitra-inspect", "mitra-search", "mitra-app", "mitra-lab", "mitra-fuzz"}

# What each top module of `app` may use of the others, from the lowest to the highest. Test code is free.
APP_MAY_USE = {
    "asked": set(),
    "errors": set(),
    "heap": set(),
    "import": set(),
    "pager": {"signals"},
    "priority": {"heap"},
    "progress": set(),
    "redact": set(),
    "remote": {"errors", "render"},
    "render": set(),
    "signals": set(),
    "values": set(),
    "cli": {"errors", "values"},
    "supervised": {"cli", "errors"},
    "log": {"render"},
    "recording": {"cli", "errors", "progress", "remote", "render", "values"},
    "evidence": {"errors", "redact"},
    "confined": {"evidence", "log", "pager"},
    "diagnosis": {"import", "recording", "values"},
    "services": {"recording"},
    "escalation": {"asked", "errors", "log", "redact", "signals", "values"},
    "recorder": {"asked", "cli", "errors", "escalation", "log", "render"},
    "service_manager": {"recorder"},
    "messages": {"diagnosis", "redact", "render"},
    "moment": {"recording", "services"},
    "live": {"cli", "diagnosis", "moment", "render", "signals"},
    "served": {"asked", "cli"},
    "serve": {"asked", "cli", "confined", "diagnosis", "heap", "log", "messages", "recording", "redact", "render", "values"},
    "tui": {"diagnosis", "live", "moment", "render", "signals", "values"},
}
# Each command may use all of them; nothing uses a command but `main`.
APP_MAY_USE["commands"] = set(APP_MAY_USE)
APP_MAY_USE["main"] = set(APP_MAY_USE)

# A crate with such a name collects what nobody wanted to find a place for.
NO_SUCH_NAMES = {"common", "util", "utils", "helpers", "shared", "misc", "core", "lib"}


def problems(metadata, has_own_clippy):
    """The broken rules of a workspace, as sentences. `has_own_clippy(package)` tells whether it has a clippy.toml."""
    found = []
    packages = [p for p in metadata["packages"] if p["id"] in set(metadata["workspace_members"])]
    names = {p["name"] for p in packages}
    for package in packages:
        name = package["name"]
        if NO_SUCH_NAMES & set(name.lower().replace("_", "-").split("-")):
            found.append(f"{name}: there is no crate of that kind here; put the code where its meaning is")
        if name not in MAY_USE:
            found.append(f"{name}: say in tools/check-edges.py what it may use, and in ARCHITECTURE.md why it exists")
            continue
        if has_own_clippy(package) and name not in MAY_TOUCH_FILES:
            found.append(f"{name}: has a clippy.toml of its own, but may not touch files")
        for dependency in package["dependencies"]:
            used = dependency["name"]
            in_test = dependency["kind"] == "dev"
            if used in names | MAY_USE.keys():
                if used not in MAY_USE[name] and not (in_test and (name, used) in TESTS_MAY_USE):
                    found.append(f"{name}: may not use {used}{' (not in tests either)' if in_test else ''}")
                continue
            if used in OWNERS and name not in OWNERS[used] and not in_test:
                found.append(f"{name}: {used} belongs to {', '.join(sorted(OWNERS[used]))}")
            if name in PURE and used in IMPURE and not in_test:
                found.append(f"{name}: only computes, so it has no use for {used}")
    return found


def used_modules(source):
    """The top modules that the code of a file names, apart from its tests."""
    code = re.split(r"#\[cfg\(test\)\]\s*mod tests\b", source)[0]
    code = re.sub(r"//.*", "", code)
    found = set(re.findall(r"\bcrate::(\w+)", code))
    for group in re.findall(r"\bcrate::\{(.*?)\};", code, re.DOTALL):
        # Names inside of inner braces belong to a module.
        while "{" in group:
            group = re.sub(r"\{[^{}]*\}", "", group)
        found |= set(re.findall(r"(?:^|,)\s*(\w+)", group))
    return found


def module_problems(sources, may_use):
    """The broken rules among top modules. `sources` has the text of each file by its path in `src`."""
    found = []
    for path, source in sorted(sources.items()):
        if pathlib.PurePath(path).name == "tests.rs":
            continue
        module = pathlib.PurePath(path).parts[0].removesuffix(".rs")
        if module not in may_use:
            found.append(f"app/src/{path}: say in tools/check-edges.py what the module may use")
            continue
        for used in sorted(used_modules(source) & may_use.keys() - may_use[module] - {module}):
            found.append(f"app/src/{path}: {module} may not use {used}")
    try:
        graphlib.TopologicalSorter(may_use).prepare()
    except graphlib.CycleError as error:
        found.append(f"the modules of app go in a circle: {' -> '.join(error.args[1])}")
    return found


# The floors of the diagnosis. The engine asks the conditions; no condition uses another one; and what several of them need
# knows neither.
DIAGNOSE = pathlib.Path("crates/diagnose/src")
ABOVE = "conditions|engine|graph|suspicions|explain|explain_files|episodes|ledger|compare|scan_metrics|detail_metrics"


def floor_problems(sources):
    """The broken rules of the diagnosis, as sentences. `sources` has the text of each file by its path below `src`."""
    found = []
    for path, text in sources.items():
        if path in {"lib.rs", "conditions/mod.rs"} or path.startswith("engine/"):
            continue
        code = re.sub(r"//[^\n]*", "", text.split("#[cfg(test)]")[0])
        used = re.findall(rf"\bcrate::({ABOVE})\b", code)
        for group in re.findall(r"\bcrate::\{([^}]*)\}", code):
            used += re.findall(rf"(?:^|,)\s*({ABOVE})\b", group)
        if path.startswith("conditions/"):
            used += re.findall(r"\bsuper::[\w:{]+", code)
        found += [f"{DIAGNOSE / path}: uses {name}, which is above it or beside it" for name in sorted(set(used))]
    return found


def check_floors():
    good = {
        "lib.rs": "pub use conditions::all;",
        "engine/graph.rs": "use crate::conditions;",
        "conditions/disk/a.rs": "//! As crate::engine has it.\nuse crate::device;\n#[cfg(test)]\nmod tests { use super::*; }",
        "device.rs": "use crate::signal::Signal;",
    }
    assert floor_problems(good) == []
    bad = {
        "a condition uses another one": ("conditions/disk/a.rs", "use super::b::is_full;"),
        "a condition asks the list of conditions": ("conditions/disk/a.rs", "let all = crate::conditions::all();"),
        "a condition uses the engine": ("conditions/disk/a.rs", "use crate::engine::graph;"),
        "what is shared uses a condition": ("device.rs", "use crate::conditions::disk::a::is_full;"),
        "what is shared uses the engine": ("device.rs", "use crate::{ledger, words};"),
    }
    for what, (path, text) in bad.items():
        assert floor_problems({path: text}), f"not caught: {what}"


def sample(*packages):
    """A made-up workspace: `(name, [(dependency, kind), …])`."""
    return {
        "packages": [
            {"id": name, "name": name, "dependencies": [{"name": d, "kind": k} for d, k in dependencies]}
            for name, dependencies in packages
        ],
        "workspace_members": [name for name, _ in packages],
    }


def check_itself():
    model = ("mitra-model", [("serde", None)])
    archive = ("mitra-archive", [("mitra-model", None), ("zstd", None)])
    good = sample(model, archive, ("mitra-app", [("mitra-archive", None), ("anyhow", None)]))
    assert problems(good, lambda p: p["name"] == "mitra-archive") == []
    bad = {
        "model uses a crate": sample(("mitra-model", [("mitra-parse", None)])),
        "diagnose reads the archive": sample(model, archive, ("mitra-diagnose", [("mitra-archive", None)])),
        "a test of diagnose reads the archive": sample(archive, ("mitra-diagnose", [("mitra-archive", "dev")])),
        "a build script of collect uses the archive": sample(archive, ("mitra-collect", [("mitra-archive", "build")])),
        "something uses app": sample(("mitra-archive", [("mitra-app", None)])),
        "something uses the laboratory": sample(("mitra-app", [("mitra-lab", None)])),
        "a test uses the laboratory": sample(("mitra-diagnose", [("mitra-lab", "dev")])),
        "a heavy dependency strays": sample(("mitra-diagnose", [("zstd", None)])),
        "a pure crate makes system calls": sample(("mitra-parse", [("rustix", None)])),
        "a crate without a rule": sample(("mitra-weather", [])),
        "a drawer for everything": sample(("mitra-utils", [])),
    }
    for what, metadata in bad.items():
        assert problems(metadata, lambda p: False), f"not caught: {what}"
    assert problems(sample(("mitra-parse", [])), lambda p: True), "not caught: parse may touch files"
    check_itself_on_modules()


def check_itself_on_modules():
    may_use = {"render": set(), "live": {"render"}, "commands": {"live", "render"}}
    tests = "#[cfg(test)]\nmod tests {\n    use crate::commands::run;\n}\n"
    good = {
        "render/mod.rs": f"//! For crate::live.\nuse crate::render::style;\n{tests}",
        "live.rs": "use crate::{render::{style, text}};\n",
        "commands/tests.rs": "use crate::weather;\n",
    }
    assert module_problems(good, may_use) == [], module_problems(good, may_use)
    bad = {
        "a low module uses a high one": {"render/text.rs": "use crate::live::State;\n"},
        "by its path": {"live.rs": "fn f() { crate::commands::run() }\n"},
        "in a group": {"live.rs": "use crate::{\n    render::{a, b},\n    commands,\n};\n"},
        "a module without a rule": {"weather.rs": ""},
    }
    for what, sources in bad.items():
        assert module_problems(sources, may_use), f"not caught: {what}"
    assert module_problems({}, {"a": {"b"}, "b": {"a"}}), "not caught: a circle"


def main():
    check_itself()
    check_floors()
    output = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version", "1", "--locked"], stdout=subprocess.PIPE, check=True
    )
    found = problems(
        json.loads(output.stdout), lambda p: pathlib.Path(p["manifest_path"]).with_name("clippy.toml").exists()
    )
    root = pathlib.Path(__file__).resolve().parent.parent / "crates/app/src"
    sources = {str(path.relative_to(root)): path.read_text() for path in root.rglob("*.rs")}
    found += module_problems(sources, APP_MAY_USE)
    found += floor_problems({str(p.relative_to(DIAGNOSE)): p.read_text() for p in sorted(DIAGNOSE.rglob("*.rs"))})
    for problem in found:
        print(f"check-edges: {problem}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
