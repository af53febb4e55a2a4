#!/bin/sh
# Every test, in two processes side by side: Spark's tests wait more than they compute, the others only compute.
# Usage: test.sh PYTHON. The second report is printed when both have ended; the exit code is 1 where either failed.
set -u
python=$1
alone="tests/cases tests/engine tests/kernels tests/plan tests/random_queries tests/sql tests/state"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086  # folders are words
"$python" -m pytest -p no:cacheprovider --durations=10 $alone >"$log" 2>&1 &
other=$!
trap 'kill "$other" 2>/dev/null; rm -f "$log"; exit 130' INT TERM
ignored=""
for folder in $alone; do ignored="$ignored --ignore=$folder"; done
# shellcheck disable=SC2086
"$python" -m pytest --durations=10 $ignored
with_spark=$?
wait "$other"
without=$?
cat "$log"
[ "$with_spark" -eq 0 ] && [ "$without" -eq 0 ]
