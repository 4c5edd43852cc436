#!/usr/bin/env bash
# Installs one of the tools that make uses into bin/tools, at the version that
# is pinned here: scripts/tools.sh NAME
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/bin/tools

go_install() { GOBIN=$tools go install "$1"; }

# buf comes as a binary inside an npm package; nothing of it runs under node.
npm_buf() {
  npm install --prefix "$tools/npm" --no-save --no-audit --no-fund \
    --ignore-scripts --loglevel=error "@bufbuild/buf@$1"
  (cd "$tools" && ln -sf npm/node_modules/@bufbuild/buf-*/bin/buf buf && ./buf --version)
}

mkdir -p "$tools"
case ${1:-} in
  buf) npm_buf 1.75.0 ;;
  protoc-gen-go) go_install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12 ;;
  protoc-gen-go-grpc) go_install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2 ;;
  staticcheck) go_install honnef.co/go/tools/cmd/staticcheck@v0.8.2 ;;
  *)
    echo "usage: $0 buf|protoc-gen-go|protoc-gen-go-grpc|staticcheck" >&2
    exit 2
    ;;
esac
touch "$tools/$1"
