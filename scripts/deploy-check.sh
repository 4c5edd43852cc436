#!/usr/bin/env bash
# Checks what deploy/ holds, and the Dockerfile, as far as it goes without a
# booted systemd, a Docker daemon or a Kubernetes cluster. Needs bin/controllerd,
# and root or user namespaces.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

bin/controllerd version | grep -q "^Commit: *$(git rev-parse HEAD)$" ||
  { echo "bin/controllerd is not of this commit:" >&2; bin/controllerd version >&2; exit 1; }

# The unit as it is, but for where the program lies. What systemd-analyze only
# warns of counts as well.
sed "s#/usr/local/bin/controllerd#$PWD/bin/controllerd#" deploy/systemd/controllerd.service >"$work/controllerd.service"
systemd-analyze verify --man=no "$work/controllerd.service" 2>&1 | tee "$work/found"
[ ! -s "$work/found" ] || { echo "deploy/systemd/controllerd.service: see above" >&2; exit 1; }
# 20 of 100: nothing is open to it that it does not need.
systemd-analyze security --no-pager --offline=true --threshold=20 "$work/controllerd.service" >"$work/found" ||
  { cat "$work/found" >&2; exit 1; }
tail -n 1 "$work/found"

# The Dockerfile and the manifests.
cd deploy/check
go mod tidy -diff
go vet ./...
go test -count=1 ./... # the cache does not know files outside of the module
