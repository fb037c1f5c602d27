#!/usr/bin/env bash
# Runs unsafe code and threads where mistakes are seen that tests alone do not see: `tools/sanitize.sh miri|address|thread…`
#
#   miri     code that makes no system calls: the vectors of the census with each set of instructions, records of BPF programs
#   address  unit tests of the crates with unsafe code or with C below them (zstd, ring)
#   thread   unit tests of those with threads; the standard library is built too, or its locks would be taken for races
#
# Says for each what it took.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$HOME/.cache/mitra-target}/sanitize
host=$(rustc +nightly -vV | sed -n 's/^host: //p')

miri() {
    # Files are read and times taken, which is nothing to it.
    export MIRIFLAGS=-Zmiri-disable-isolation
    cargo +nightly miri test --locked -p mitra-inspect --lib census::classify
    # Which instructions there are is known when it is compiled.
    RUSTFLAGS=-Ctarget-feature=+avx2,+bmi1,+bmi2,+lzcnt \
        cargo +nightly miri test --locked -p mitra-inspect --lib census::classify
    cargo +nightly miri test --locked -p mitra-collect --lib -- bpf::record bpf::task
}

address() {
    RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 \
        cargo +nightly test --locked --target "$host" --lib -p mitra-inspect -p mitra-search -p mitra-archive -p mitra-collect
}

thread() {
    RUSTFLAGS=-Zsanitizer=thread \
        cargo +nightly test --locked -Zbuild-std --target "$host" --lib -p mitra-archive -p mitra-collect -p mitra-search
}

for way in "$@"; do
    SECONDS=0
    case $way in
    miri | address | thread) "$way" ;;
    *)
        echo "sanitize: unknown way '$way'; there are miri, address and thread" >&2
        exit 1
        ;;
    esac
    echo "sanitize: $way took ${SECONDS} s"
done
