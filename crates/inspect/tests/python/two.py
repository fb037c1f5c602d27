# Two interpreters in one process, if the version can create another one.
import sys

try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
other = interpreters.create()
interpreters.run_string(other, "import json\nkept = [[i] for i in range(5000)]")
print("ready")
sys.stdout.flush()
sys.stdin.read()
