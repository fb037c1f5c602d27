#!/usr/bin/env bash
# The scripts themselves: shell through shellcheck where it is installed, Python through its own compiler; and what they
# are called with.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t shell < <(git ls-files --cached --others --exclude-standard | xargs grep -lE '^#!.*\b(ba)?sh$' --)
mapfile -t python < <(git ls-files --cached --others --exclude-standard -- '*.py')

for script in "${shell[@]}"; do
    bash -n "$script"
done
if command -v shellcheck >/dev/null; then
    shellcheck "${shell[@]}"
else
    echo "check-scripts: shellcheck is not installed, so only the syntax was checked"
fi
# Each set of packages that the Makefile asks for has to be known to the script that installs them.
mapfile -t sets < <(grep -oE 'install-deps\.sh [a-z-]+' Makefile | cut -d ' ' -f 2 | sort -u)
for set in "${sets[@]}"; do
    if ! grep -qE "^    $set\) need_build" tools/install-deps.sh; then
        echo "check-scripts: the Makefile calls tools/install-deps.sh $set, and there is no such set" >&2
        exit 1
    fi
done
# In memory: nothing is left behind in the checkout.
python3 - "${python[@]}" <<'PYTHON'
import sys

for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as script:
        compile(script.read(), path, "exec")
PYTHON
