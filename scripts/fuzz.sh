#!/usr/bin/env bash
# Runs every fuzz target of the module for a while, one after the other:
# scripts/fuzz.sh 60s
set -euo pipefail
cd "$(dirname "$0")/.."
for=${1:?usage: scripts/fuzz.sh DURATION}
said=$(mktemp)
trap 'rm -f "$said"' EXIT

# fuzz runs one target. Go before 1.27 sometimes reports the end of the time
# itself as a failure (golang/go#75804): no failing input, no panic, no failed
# seed, only "context deadline exceeded".
fuzz() {
  go test "$1" -run '^$' -fuzz "^$2\$" -fuzztime "$for" 2>&1 | tee "$said" && return
  test "$(sed -n '/^--- FAIL/,/^FAIL/p' "$said" | sed '1d;$d' | tr -d ' ')" = contextdeadlineexceeded
}

targets=0
for file in $(git grep -l --untracked '^func Fuzz' -- '*_test.go'); do
  for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
    echo "$target in ./$(dirname "$file")"
    fuzz "./$(dirname "$file")" "$target"
    targets=$((targets + 1))
  done
done
test "$targets" -gt 0 || { echo 'no fuzz targets found' >&2; exit 1; }
echo "$targets targets, $for each"
