#!/bin/sh
# Runs every test, in two processes side by side: tests on a shared Spark session mostly wait, the others mostly compute.
# Usage: test.sh PYTHON. Prints the second report when both have ended; exits with 1 if either failed.
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
