#!/usr/bin/env bash
# A real OpenSearch for tests: `tools/opensearch.sh start DIR PORT [PORT]` starts one node, or two of one cluster, that keep
# everything below DIR and listen on this machine only; `tools/opensearch.sh stop DIR [PORT]` ends all of them, or one.
# `start` with the port of a node that was stopped starts that node again.
#
# It prints a line "node PORT PID" for each node. Without java or mvn it prints why there is none and exits with 77.
#
# The server is put together once, in ~/.cache/mitra-engines (root: /var/cache), of what the project publishes for Maven: the distribution for
# integration tests, which has no plugins, and the few modules that a mapping of ours needs.
set -euo pipefail

readonly VERSION=${MITRA_OPENSEARCH_VERSION:-2.19.5}
readonly HEAP=${MITRA_OPENSEARCH_HEAP:-512m}
# As root it runs as somebody else, who has to reach it.
if [[ $(id -u) == 0 ]]; then CACHE=/var/cache/mitra-engines; else CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/mitra-engines; fi
readonly CACHE
readonly DIST=$CACHE/opensearch-$VERSION
readonly PATIENCE_S=180
readonly SKIPPED=77

usage() {
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

skip() {
    echo "opensearch.sh: skipped: $1" >&2
    exit "$SKIPPED"
}

# artifact GROUP NAME VERSION TYPE FOLDER: an item for Maven
artifact() {
    echo "<artifactItem><groupId>$1</groupId><artifactId>$2</artifactId><version>$3</version><type>$4</type>" \
        "<outputDirectory>$5</outputDirectory></artifactItem>"
}

# module FOLDER NAME CLASS: what tells the server that a folder holds a module
module() {
    cat >"$1/plugin-descriptor.properties" <<PROPERTIES
name=$2
description=$2
version=$VERSION
opensearch.version=$VERSION
java.version=11
classname=$3
custom.foldername=
extended.plugins=
has.native.controller=false
PROPERTIES
}

fetch() {
    command -v mvn >/dev/null || skip "mvn is not installed"
    local work
    work=$(mktemp -d "$CACHE/fetch.XXXXXX")
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    {
        echo "<project><modelVersion>4.0.0</modelVersion><groupId>mitra</groupId><artifactId>engine</artifactId>"
        echo "<version>1</version><packaging>pom</packaging><build><plugins><plugin>"
        echo "<groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId>"
        echo "<version>3.6.1</version><configuration><artifactItems>"
        artifact org.opensearch.distribution.integ-test-zip opensearch "$VERSION" zip "$work"
        artifact org.opensearch.plugin analysis-common "$VERSION" jar "$work/analysis-common"
        artifact org.opensearch.plugin mapper-extras-client "$VERSION" jar "$work/mapper-extras"
        echo "</artifactItems></configuration></plugin></plugins></build></project>"
    } >"$work/pom.xml"
    mvn -q -B -f "$work/pom.xml" dependency:copy >&2 || skip "OpenSearch $VERSION could not be fetched"
    (cd "$work" && python3 -m zipfile -e "opensearch-$VERSION.zip" unpacked)
    local root=$work/unpacked/opensearch-$VERSION
    local name
    for name in analysis-common mapper-extras; do
        [[ -d $root/modules/$name ]] || mv "$work/$name" "$root/modules/$name"
    done
    module "$root/modules/analysis-common" analysis-common org.opensearch.analysis.common.CommonAnalysisPlugin
    module "$root/modules/mapper-extras" mapper-extras org.opensearch.index.mapper.MapperExtrasPlugin
    chmod -R a+rX "$root"
    # Whoever is first wins; another one has fetched the same.
    mv -T "$root" "$DIST" 2>/dev/null || [[ -d $DIST ]]
    rm -rf "$work"
    trap - EXIT
}

answers() {
    curl -fsS -m 2 "http://127.0.0.1:$1/" >/dev/null 2>&1
}

# node DIR PORT SEED PORTS...: starts a node that finds the others by the transport port of SEED, unless it is SEED
node() {
    local dir=$1 port=$2 seed=$3 run=$1/node-$2
    shift 3
    if [[ -s $run/pid ]] && kill -0 "$(<"$run/pid")" 2>/dev/null; then
        echo "node $port $(<"$run/pid")"
        return
    fi
    mkdir -p "$run"/{data,logs,tmp,config}
    cp "$DIST/config/log4j2.properties" "$run/config/"
    {
        echo "cluster.name: mitra-$seed"
        echo "node.name: n$port"
        echo "network.host: 127.0.0.1"
        echo "http.port: $port"
        echo "transport.port: $((port + 100))"
        echo "path.data: $run/data"
        echo "path.logs: $run/logs"
        echo "cluster.routing.allocation.disk.threshold_enabled: false"
        if [[ $port == "$seed" ]]; then
            echo "discovery.seed_hosts: []"
            [[ -e $run/formed ]] || echo "cluster.initial_cluster_manager_nodes: [n$port]"
        else
            # Of two that may lead, neither could without the other.
            echo "discovery.seed_hosts: [\"127.0.0.1:$((seed + 100))\"]"
            echo "node.roles: [data, ingest]"
        fi
    } >"$run/config/opensearch.yml"
    local as=()
    if [[ $(id -u) == 0 ]]; then
        # The server refuses to run as root; any other number will do.
        chown -R 65534:65534 "$run"
        chmod a+x "$dir" "$run"
        as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    fi
    (
        cd "$run"
        # What the server's own script ends in, without the two Java machines that it starts to read its options.
        exec setsid "${as[@]}" java "-Xms$HEAP" "-Xmx$HEAP" -XX:+UseSerialGC -XX:-UsePerfData -Xshare:auto \
            "-Djava.io.tmpdir=$run/tmp" -Dfile.encoding=UTF-8 -Djava.awt.headless=true -Djava.locale.providers=SPI,COMPAT \
            -Dio.netty.noUnsafe=true -Dio.netty.noKeySetOptimization=true -Dio.netty.recycler.maxCapacityPerThread=0 \
            -Dio.netty.allocator.numDirectArenas=0 -Dlog4j.shutdownHookEnabled=false -Dlog4j2.disable.jmx=true \
            "-Dopensearch.path.home=$DIST" "-Dopensearch.path.conf=$run/config" -Dopensearch.distribution.type=zip \
            -Dopensearch.bundled_jdk=false -cp "$DIST/lib/*" org.opensearch.bootstrap.OpenSearch
    ) >"$run/logs/stdout" 2>&1 </dev/null &
    local pid=$!
    local waited
    for ((waited = 0; waited < PATIENCE_S * 2; waited++)); do
        if answers "$port"; then
            echo "$pid" >"$run/pid"
            touch "$run/formed"
            echo "node $port $pid"
            return
        fi
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.5
    done
    echo "opensearch.sh: the node on port $port did not come up:" >&2
    tail -n 30 "$run/logs/stdout" >&2
    kill "$pid" 2>/dev/null || true
    exit 1
}

start() {
    [[ $# -ge 2 && $# -le 3 ]] || usage
    command -v java >/dev/null || skip "java is not installed"
    local dir=$1
    shift
    mkdir -p "$CACHE" "$dir"
    dir=$(realpath "$dir")
    [[ -d $DIST ]] || fetch
    # The first node that was ever started here leads; others join it.
    [[ -s $dir/seed ]] || echo "$1" >"$dir/seed"
    local port
    for port in "$@"; do
        node "$dir" "$port" "$(<"$dir/seed")"
    done
}

stop() {
    [[ $# -ge 1 && $# -le 2 ]] || usage
    local file pid
    for file in "$1"/node-*/pid; do
        [[ -s $file ]] || continue
        [[ -z ${2:-} || $file == "$1/node-$2/pid" ]] || continue
        pid=$(<"$file")
        kill "$pid" 2>/dev/null || true
        for _ in $(seq 100); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.2
        done
        kill -9 "$pid" 2>/dev/null || true
        rm -f "$file"
    done
}

case ${1:-} in
start) shift && start "$@" ;;
stop) shift && stop "$@" ;;
*) usage ;;
esac
