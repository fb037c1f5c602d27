#!/usr/bin/env bash
# docs/ is written by the code from its own tables. Checks that it is up to date; `--write` brings it there.
#
# Builds with the profile of the tests, so that nothing is compiled only for this.
set -euo pipefail
cd "$(dirname "$0")/.."

mitra=(cargo run --quiet --locked --profile test --bin mitra --)
if [[ ${1:-} == --write ]]; then
    "${mitra[@]}" docs docs
else
    "${mitra[@]}" docs --check docs
fi
