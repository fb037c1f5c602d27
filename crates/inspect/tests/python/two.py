# Two interpreters in one process, where the version has a way to make another.
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
