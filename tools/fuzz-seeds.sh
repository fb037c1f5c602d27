#!/usr/bin/env bash
# Fills fuzz/corpus with what tools, people and machines really wrote, so that fuzzing begins with that: the fixtures of the
# tests, and fuzz/seeds, where the formats are binary. It adds to what a fuzzer found there.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p fuzz/corpus
cp -R fuzz/seeds/. fuzz/corpus

content=$(mktemp)
trap 'rm -f "$content"' EXIT

# put CORPUS BYTE: standard input becomes a seed, behind the byte that says what it is.
put() {
    mkdir -p "fuzz/corpus/$1"
    cat >"$content"
    { printf '%b' "$2"; cat "$content"; } >"fuzz/corpus/$1/seed-$(sha1sum <"$content" | cut -c1-16)"
}

# seed CORPUS BYTE PATH…: files, and those below folders. Large ones only slow the fuzzer down.
seed() {
    local corpus=$1 byte=$2
    shift 2
    find "$@" -type f -size -16k | while read -r file; do put "$corpus" "$byte" <"$file"; done
}

# lines CORPUS BYTE: each line of standard input.
lines() {
    while IFS= read -r line; do printf '%s' "$line" | put "$1" "$2"; done
}

# The parsers of /proc and /sys: the byte in front is the place of their name in fuzz/src/proc_parsers.rs.
mapfile -t parsers < <(sed -n '/^const TARGETS/,/^];/s/^    "\(.*\)",$/\1/p' fuzz/src/proc_parsers.rs)
for number in "${!parsers[@]}"; do
    byte=$(printf '\\x%02x' "$number")
    name=${parsers[$number]}
    case $name in
    proc/*) paths=(crates/parse/fixtures/*/"$name") ;;
    numastat) paths=(crates/parse/fixtures/*/sys/devices/system/node/node*/numastat) ;;
    node-meminfo) paths=(crates/parse/fixtures/*/sys/devices/system/node/node*/meminfo) ;;
    sysctl-number) paths=(crates/parse/fixtures/*/proc/sys/vm/swappiness) ;;
    sysctl-text) paths=(crates/parse/fixtures/*/proc/sys/net/ipv4/tcp_mem) ;;
    task-*) paths=(crates/parse/fixtures/*/proc/[0-9]*/"${name#task-}" crates/parse/fixtures/*/proc/[0-9]*/task/*/"${name#task-}") ;;
    stack) paths=(crates/parse/fixtures/*/proc/[0-9]*/stack) ;;
    mounts) paths=(crates/parse/fixtures/*/proc/[0-9]*/mountinfo) ;;
    *) paths=() ;;
    esac
    for path in "${paths[@]}"; do
        if [[ -f $path ]]; then seed proc_parsers "$byte" "$path"; fi
    done
done

# The byte in front says that the file has no date.
outputs=crates/parse/tests/outputs
cases=crates/app/tests/cases
seed text_sysstat 0 $outputs/sysstat $cases
seed text_procfs 0 $outputs/{procps,snapshots,net} $cases
seed text_tracing 0 $outputs/tracing $cases
seed text_logs 0 $outputs/logs $cases
seed text_heaps 0 $outputs/{heaps,bench} $cases
seed text_monitors 0 $outputs/monitors

# The byte in front is the parser's number.
seed inspect_parsers 1 $outputs/heaps/smaps
seed inspect_parsers 5 $outputs/heaps/jvm
seed inspect_parsers 6 $outputs/heaps/erlang

sed -n 's/^ *when: "\(.*\)",$/\1/p' crates/diagnose/src/conditions/*/*.rs | lines rules 0
printf '%s\n' 3s 1.5KiB 30% 2_000/s | lines rules 1
seed rules 2 packaging/mitra.toml
sed -n '/^```toml/,/^```/{/^```/d;p}' docs/rules.md | put rules 2

sed -n '/^[^#]/s/ | .*//p' crates/search/tests/conformance/queries.txt | lines search_query ''
seed search_config '' packaging/mitra.toml
sed -n '/^\/\/! ```yaml/,/^\/\/! ```$/{/```/d;s/^\/\/! //p}' crates/search/src/indexer/config.rs | put search_config ''
seed search_secrets '' crates/search/src/secrets/tests crates/search/src/secrets/tests.rs

# The byte in front says how a message came.
sed -n '/^const QUERIES/,/^];/{s/^    "\(.*\)",$/\1/p}' crates/app/tests/cli/prometheus.rs | sed 's/\\"/"/g' | lines ask_promql ''
printf '%s\n' \
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}' \
    '{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"query","arguments":{"a":"x","b":3}}}' \
    '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}' \
    '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}' |
    lines ask_mcp 2
