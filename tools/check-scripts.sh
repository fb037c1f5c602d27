#!/usr/bin/env bash
# The scripts themselves: shell through shellcheck where it is installed, Python through its own compiler.
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
# In memory: nothing is left behind in the checkout.
python3 - "${python[@]}" <<'PYTHON'
import sys

for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as script:
        compile(script.read(), path, "exec")
PYTHON
