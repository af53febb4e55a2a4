#!/bin/sh
# Every test, in two processes side by side: those that share a Spark session wait more than they compute, the others
# compute more than they wait.
# Usage: test.sh PYTHON. The second report is printed when both have ended; the exit code is 1 where either failed.
set -u
python=$1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$python" -m pytest -p no:cacheprovider --durations=10 -m "not spark" >"$log" 2>&1 &
other=$!
trap 'kill "$other" 2>/dev/null; rm -f "$log"; exit 130' INT TERM
"$python" -m pytest --durations=10 -m spark
with_spark=$?
wait "$other"
without=$?
cat "$log"
[ "$with_spark" -eq 0 ] && [ "$without" -eq 0 ]
