#!/usr/bin/env bash
# Runs every fuzz target of the module for a while, one after the other:
# scripts/fuzz.sh 60s
set -euo pipefail
cd "$(dirname "$0")/.."
for=${1:?usage: scripts/fuzz.sh DURATION}

targets=0
for file in $(git grep -l --untracked '^func Fuzz' -- '*_test.go'); do
  for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
    echo "$target in ./$(dirname "$file")"
    go test "./$(dirname "$file")" -run '^$' -fuzz "^$target\$" -fuzztime "$for"
    targets=$((targets + 1))
  done
done
test "$targets" -gt 0 || { echo 'no fuzz targets found' >&2; exit 1; }
echo "$targets targets, $for each"
