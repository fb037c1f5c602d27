#!/usr/bin/env bash
# The C compiler for musl: `zig cc`, which has the headers of musl for every architecture, under the names of targets
# that cargo uses. build.py hands it to cargo.
set -euo pipefail

args=()
for arg in "$@"; do
    case $arg in
    --target=*-unknown-linux-musl)
        arch=${arg#--target=}
        args+=(-target "${arch%%-*}-linux-musl")
        ;;
    *) args+=("$arg") ;;
    esac
done
exec "${MITRA_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/mitra-venv}/bin/python" -m ziglang cc "${args[@]}"
