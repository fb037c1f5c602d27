#!/usr/bin/env bash
# Copies the fixtures of the text readers into the corpora of their fuzz targets, so that fuzzing begins with what tools
# really print. The byte in front says that the file has no date.
set -euo pipefail
cd "$(dirname "$0")/.."

# Puts files below a folder of fixtures into a corpus. Large ones only slow the fuzzer down.
seed() {
    local corpus=fuzz/corpus/$1
    shift
    mkdir -p "$corpus"
    find "$@" -type f -size -16k | while read -r file; do
        { printf '0'; cat "$file"; } > "$corpus/seed-$(sha1sum < "$file" | cut -c1-16)"
    done
}

outputs=crates/parse/tests/outputs
cases=crates/app/tests/cases
seed text_sysstat $outputs/{sar,iostat,mpstat,pidstat,cifsiostat} $cases
seed text_procfs $outputs/{procps,snapshots,net,status} $cases
seed text_tracing $outputs/{strace,perf,bpf} $cases
seed text_logs $outputs/{dmesg,journal,bird} $cases
seed text_heaps $outputs/{ab,erlang,fio,guppy,hey,jvm,mkfs,pgbench,pmap,redis-benchmark,smaps,strings,sysbench,tracemalloc,vegeta,wrk} $cases
