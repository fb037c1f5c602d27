#!/usr/bin/env bash
# A real Kafka for tests: `tools/kafka.sh start DIR PORT SASL_PORT CONTROLLER_PORT` starts a broker that keeps everything below DIR
# and listens on this machine only, at SASL_PORT for the user `mitra` with the password `sesame` (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512).
# `topic DIR NAME PARTITIONS` makes a topic, `read DIR NAME COUNT [PARTITION]` prints so many messages as their keys, a tab and
# their values, `value DIR NAME` the value of the first message as it is, `stop DIR` ends the broker.
#
# Without java or mvn it prints why there is none and exits with 77. The server comes from Maven, once, into
# ~/.cache/mitra-engines (root: /var/cache).
set -euo pipefail

readonly VERSION=${MITRA_KAFKA_VERSION:-4.1.2}
if [[ $(id -u) == 0 ]]; then CACHE=/var/cache/mitra-engines; else CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/mitra-engines; fi
readonly CACHE
readonly DIST=$CACHE/kafka-$VERSION
readonly PATIENCE_S=60
readonly SKIPPED=77

usage() {
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

skip() {
    echo "kafka.sh: skipped: $1" >&2
    exit "$SKIPPED"
}

fetch() {
    command -v mvn >/dev/null || skip "mvn is not installed"
    local work name
    work=$(mktemp -d "$CACHE/fetch.XXXXXX")
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    {
        echo "<project><modelVersion>4.0.0</modelVersion><groupId>mitra</groupId><artifactId>kafka</artifactId>"
        echo "<version>1</version><packaging>pom</packaging><dependencies>"
        for name in kafka_2.13 kafka-tools; do
            echo "<dependency><groupId>org.apache.kafka</groupId><artifactId>$name</artifactId><version>$VERSION</version></dependency>"
        done
        echo "</dependencies></project>"
    } >"$work/pom.xml"
    mvn -q -B -f "$work/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
        -DincludeScope=runtime "-DoutputDirectory=$work/lib" >&2 || skip "Kafka $VERSION could not be fetched"
    # Whoever is first wins; another one has fetched the same.
    mv -T "$work/lib" "$DIST" 2>/dev/null || [[ -d $DIST ]]
    rm -rf "$work"
    trap - EXIT
}

# run CLASS ARGUMENTS...
run() {
    java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -cp "$DIST/*" "$@"
}

start() {
    [[ $# == 4 ]] || usage
    command -v java >/dev/null || skip "java is not installed"
    local port=$2 sasl=$3 controller=$4 waited
    mkdir -p "$CACHE" "$1"
    local dir
    dir=$(realpath "$1")
    [[ -d $DIST ]] || fetch
    local module=org.apache.kafka.common.security
    cat >"$dir/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller,SASL_PLAINTEXT://127.0.0.1:$sasl
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl_plaintext.plain.sasl.jaas.config=$module.plain.PlainLoginModule required user_mitra="sesame";
listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config=$module.scram.ScramLoginModule required;
listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config=$module.scram.ScramLoginModule required;
log.dirs=$dir/log
offsets.topic.replication.factor=1
auto.create.topics.enable=false
PROPERTIES
    echo "$port" >"$dir/port"
    run kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAA -c "$dir/server.properties" --standalone \
        --add-scram 'SCRAM-SHA-256=[name=mitra,password=sesame]' \
        --add-scram 'SCRAM-SHA-512=[name=mitra,password=sesame]' >"$dir/format" 2>&1 || { cat "$dir/format" >&2; exit 1; }
    (
        cd "$dir"
        exec setsid java -Xmx512m -XX:+UseSerialGC -XX:-UsePerfData -cp "$DIST/*" kafka.Kafka "$dir/server.properties"
    ) >"$dir/stdout" 2>&1 </dev/null &
    echo $! >"$dir/pid"
    for ((waited = 0; waited < PATIENCE_S * 5; waited++)); do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return
        kill -0 "$(<"$dir/pid")" 2>/dev/null || break
        sleep 0.2
    done
    echo "kafka.sh: the broker did not come up:" >&2
    tail -n 30 "$dir/stdout" >&2
    exit 1
}

broker() {
    echo "127.0.0.1:$(<"$1/port")"
}

consume() {
    run org.apache.kafka.tools.consumer.ConsoleConsumer --bootstrap-server "$@" --timeout-ms 20000 2>/dev/null
}

case ${1:-} in
start) shift && start "$@" ;;
topic) run org.apache.kafka.tools.TopicCommand --bootstrap-server "$(broker "$2")" --create --topic "$3" --partitions "$4" ;;
read)
    at=(--from-beginning)
    [[ -z ${5:-} ]] || at=(--offset earliest --partition "$5")
    consume "$(broker "$2")" --topic "$3" --max-messages "$4" "${at[@]}" --property print.key=true
    ;;
value) consume "$(broker "$2")" --topic "$3" --max-messages 1 --from-beginning --property line.separator= ;;
stop)
    [[ -s $2/pid ]] || exit 0
    pid=$(<"$2/pid")
    kill "$pid" 2>/dev/null || true
    for _ in $(seq 100); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
    ;;
*) usage ;;
esac
