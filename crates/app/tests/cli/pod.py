"""Reads a Kubernetes manifest for `kubernetes.rs`.

    pod.py check MANIFEST                                 prints what is wrong, one line each
    pod.py same MANIFEST RENDERED                         prints where a rendered chart has something else
    pod.py oci MANIFEST CONTAINER ROOTFS VOLUMES SECCOMP  prints the OCI configuration of a container

`check` compares each object with the models of Kubernetes' own client, which are made from its OpenAPI document: what they
do not know or have another type for is wrong. `oci` does what containerd does with the fields that decide here: namespaces,
mounts, capabilities, limits, the seccomp profile. It does nothing with AppArmor, SELinux, resources and users. VOLUMES is a
folder with a folder for each volume that is no path of the host but /sys/fs/cgroup, SECCOMP the folder of the kubelet's profiles. `same`
passes over the namespace, which Helm makes or finds, and the checksum of the configuration.
"""

import json
import pathlib
import resource
import sys

import yaml

KINDS = {"Namespace": "V1Namespace", "ServiceAccount": "V1ServiceAccount", "ConfigMap": "V1ConfigMap", "DaemonSet": "V1DaemonSet"}
# containerd's own, for a container that is not privileged.
MASKED = ["/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats",
          "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
PATH = "PATH=/usr/bin"
# What containerd.service hands on: containerd itself sets no limits for a container.
LIMITS = {"RLIMIT_NOFILE": 1048576, "RLIMIT_MEMLOCK": 8 << 20}


def limit(kind):
    """As far as whoever runs this may raise it."""
    hard = resource.getrlimit(getattr(resource, kind))[1]
    return LIMITS[kind] if hard == resource.RLIM_INFINITY else min(LIMITS[kind], hard)


def objects(manifest):
    return list(yaml.safe_load_all(pathlib.Path(manifest).read_text()))


def daemon_set(manifest):
    return next(one for one in objects(manifest) if one["kind"] == "DaemonSet")


def schema(one):
    """What the model of an object loses has no place there."""
    from kubernetes import client

    model = getattr(client, KINDS[one["kind"]])
    try:
        kept = json.loads(json.dumps(client.ApiClient().sanitize_for_serialization(model.from_dict(one))))
    except ValueError as error:
        yield f"{one['kind']}: {error}"
        return
    yield from lost(one, kept, one["kind"])


def lost(said, kept, at):
    if isinstance(said, dict) and isinstance(kept, dict):
        for key, value in said.items():
            if key not in kept:
                yield f"{at}.{key}: there is no such field"
            else:
                yield from lost(value, kept[key], f"{at}.{key}")
    elif isinstance(said, list) and isinstance(kept, list) and len(said) == len(kept):
        for number, (a, b) in enumerate(zip(said, kept)):
            yield from lost(a, b, f"{at}[{number}]")
    elif said != kept:
        yield f"{at}: {said!r} is read as {kept!r}"


def same(manifest, rendered):
    said = {one["kind"]: one for one in objects(manifest) if one["kind"] != "Namespace"}
    got = {one["kind"]: one for one in objects(rendered)}
    if "DaemonSet" in got:
        got["DaemonSet"]["spec"]["template"]["metadata"].pop("annotations", None)
    yield from lost(said, got, "manifest")
    yield from lost(got, said, "chart")


def privileges(one):
    """What the schema does not say: names that belong together, and what a container may not have."""
    pod = one["spec"]["template"]["spec"]
    labels = one["spec"]["template"]["metadata"]["labels"]
    if not one["spec"]["selector"]["matchLabels"].items() <= labels.items():
        yield "the selector does not select the pods"
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    used = set()
    # A profile of the pod would be one of all containers.
    if pod.get("securityContext"):
        yield "the pod has a security context"
    writers = {}
    for container in pod["containers"]:
        name, context = container["name"], container["securityContext"]
        wanted = {"privileged": False, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
        for key, value in wanted.items():
            if context.get(key) is not value:
                yield f"{name}: {key} is not {value}"
        if context["capabilities"]["drop"] != ["ALL"]:
            yield f"{name}: capabilities are not dropped"
        if context["seccompProfile"]["type"] == "Unconfined":
            yield f"{name}: no seccomp profile"
        if name != "recorder" and context.keys() & {"appArmorProfile", "seLinuxOptions"}:
            yield f"{name}: it is not confined as containers are"
        if "memory" not in container["resources"]["limits"]:
            yield f"{name}: memory has no limit"
        for mount in container["volumeMounts"]:
            volume = volumes.get(mount["name"])
            used.add(mount["name"])
            if volume is None:
                yield f"{name}: there is no volume {mount['name']}"
            elif not mount.get("readOnly") and writers.setdefault(mount["name"], name) != name:
                yield f"{name}: {writers[mount['name']]} writes the volume {mount['name']}, too"
            elif "hostPath" in volume and volume["name"] not in ("archive", f"{name}-state") and not mount.get("readOnly"):
                yield f"{name}: {volume['hostPath']['path']} of the host can be written"
    yield from (f"the volume {name} is not used" for name in volumes.keys() - used)


def mounts(container, pod, folder):
    flags = ["nosuid", "noexec", "nodev"]
    yield {"destination": "/proc", "type": "proc", "source": "proc", "options": flags}
    yield {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]}
    yield {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*flags, "ro"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for mount in container["volumeMounts"]:
        name = mount["name"]
        path = volumes[name].get("hostPath", {}).get("path")
        source = path if path == "/sys/fs/cgroup" else str(folder / name)
        yield {"destination": mount["mountPath"], "type": "bind", "source": source,
               "options": ["rbind", "rprivate", "ro" if mount.get("readOnly") else "rw"]}


def seccomp(context, folder):
    profile = context["seccompProfile"]
    # RuntimeDefault is the runtime's own; runc has none, and a profile can only take away.
    if profile["type"] != "Localhost":
        return {}
    return {"seccomp": json.loads((folder / profile["localhostProfile"]).read_text())}


def oci(manifest, name, rootfs, folder, profiles):
    pod = daemon_set(manifest)["spec"]["template"]["spec"]
    (container,) = [one for one in pod["containers"] if one["name"] == name]
    context = container["securityContext"]
    caps = [f"CAP_{cap}" for cap in context["capabilities"].get("add", [])]
    shared = {"pid": pod.get("hostPID"), "network": pod.get("hostNetwork"), "ipc": pod.get("hostIPC")}
    namespaces = ["mount", "uts", *(kind for kind, is_host in shared.items() if not is_host)]
    # On version 2 of cgroups a container that is not privileged has a view of its own.
    if pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists():
        namespaces.append("cgroup")
    return {
        "ociVersion": "1.0.2",
        "root": {"path": rootfs, "readonly": context["readOnlyRootFilesystem"]},
        "hostname": "node",
        "process": {
            "terminal": False, "cwd": "/", "env": [PATH], "args": ["/usr/bin/mitra", *container["args"]],
            "user": {"uid": context["runAsUser"], "gid": context["runAsGroup"]},
            "capabilities": {kind: caps for kind in ("bounding", "effective", "permitted")},
            "noNewPrivileges": not context["allowPrivilegeEscalation"],
            "rlimits": [{"type": kind, "hard": limit(kind), "soft": limit(kind)} for kind in LIMITS],
        },
        "mounts": list(mounts(container, pod, folder)),
        "linux": {
            "namespaces": [{"type": kind} for kind in namespaces],
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            "maskedPaths": MASKED, "readonlyPaths": READ_ONLY,
            **seccomp(context, profiles),
        },
    }


def main():
    what, manifest, *rest = sys.argv[1:]
    if what == "oci":
        name, rootfs, folder, profiles = rest
        print(json.dumps(oci(manifest, name, rootfs, pathlib.Path(folder), pathlib.Path(profiles))))
        return
    if what == "same":
        print(*same(manifest, *rest), sep="\n")
        return
    for one in objects(manifest):
        print(*schema(one), sep="\n", end="\n")
    print(*privileges(daemon_set(manifest)), sep="\n")


if __name__ == "__main__":
    main()
