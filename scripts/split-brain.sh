#!/usr/bin/env bash
# The story of the split brain, with real processes: the active daemon is frozen
# beyond its lease while a write and a command of it are on their way, another
# one takes over, and then everything of the old one arrives after all.
#
# Nothing of it may be stored or obeyed. Exit code 0 says that this was so, that
# something did arrive late and was refused, and that the old daemon is of use
# again; anything else comes with what was wrong. It takes some seconds, at most
# a minute, and the build.
set -euo pipefail
cd "$(dirname "$0")/.."

# outlast is in ms: beyond it no lease that was renewed before a freeze stands.
readonly limit=60 ttl=2s outlast=2200 topic=(--partitions 12 --replication-factor 3)
work=$(mktemp -d)
step=0

clean_up() {
  local code=$? pid
  trap - EXIT
  for pid in $(jobs -p); do kill -KILL "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  if [ "$code" != 0 ]; then
    for log in "$work"/*.err; do
      [ -s "$log" ] && printf -- '--- the end of %s\n' "${log##*/}" >&2 && tail -n 20 "$log" >&2
    done
  fi
  rm -rf "$work"
  exit "$code"
}
trap clean_up EXIT
trap 'exit 1' INT TERM PIPE

say() {
  ((SECONDS < limit)) || fail "not done within $limit s"
  step=$((step + 1))
  printf '%2d. %s\n' "$step" "$*"
}

fail() {
  printf 'split-brain: %s\n' "$*" >&2
  exit 1
}

# start NAME COMMAND...: a process whose output is in $work/NAME.out and .err.
start() {
  local name=$1
  shift
  TMPDIR=$work "$@" >"$work/$name.out" 2>"$work/$name.err" 3>&- 4>&- </dev/null &
}

# ask QUESTION...: the witness's answer is in $answer.
ask() {
  local status
  printf '%s\n' "$*" >&3
  read -r -t 30 status answer <&4 || fail "the witness is silent about: $*"
  [ "$status" = ok ] || fail "$*: $answer"
}

# await FILE EXPRESSION: what sed finds, as soon as it is there, is in $answer.
await() {
  for _ in {1..200}; do
    answer=$(sed -nE "s/.*$2.*/\1/p" "$work/$1" 2>/dev/null | head -n 1 || true)
    [ -z "$answer" ] || return 0
    sleep 0.05
  done
  fail "nothing like $2 in $1"
}

millis() { date +%s%3N; }

mkdir -p bin
go build -trimpath -o bin/controllerd ./cmd/controllerd
go build -trimpath -o bin/broker ./examples/broker
go build -trimpath -o bin/splitbrain ./internal/splitbrain
SECONDS=0

start etcd bin/controllerd dev --controllers 0 --brokers 0 --etcd-listen 127.0.0.1:0
await etcd.out '(127\.0\.0\.1:[0-9]+)'
etcd=$answer
mkfifo "$work/questions" "$work/answers"
bin/splitbrain --etcd "$etcd" --daemons a,b --brokers 3 <"$work/questions" 2>&1 >"$work/answers" &
exec 3>"$work/questions" 4<"$work/answers"

daemon() { # ID
  ask etcd "$1"
  start "$1" bin/controllerd serve --id "$1" --etcd-endpoints "$answer" --etcd-endpoints-only --listen 127.0.0.1:0 --lease-ttl "$ttl"
}
daemon a
pid_a=$!
ask endpoint a
a=$answer
ask active a
first=$answer
daemon b
ask endpoint b
b=$answer
say "etcd at $etcd; daemon a is active with epoch $first, daemon b stands by; leases last $ttl"

for n in 1 2 3; do
  ask control "$n"
  control=$answer
  ask listen "$n"
  start "broker-$n" bin/broker --id "$n" --node-uuid "node-$n" --daemons "$a,$b" --listen "$answer" --advertise "$control"
done
ask live
bin/controllerd topic create orders "${topic[@]}" --server "$a" >/dev/null
ask pushed
say "three brokers obey a: they have the 12 partitions of topic orders"

ask hold-command
bin/controllerd topic create payments "${topic[@]}" --server "$a" >/dev/null
ask hold-write
start refunds bin/controllerd topic create refunds "${topic[@]}" --server "$a"
ask held
start invoices bin/controllerd topic create invoices "${topic[@]}" --server "$a"
kill -STOP "$pid_a"
frozen=$(millis)
say "a is frozen; on their way are a command to broker 1 (topic payments) and a write to etcd (topic refunds)"

ask active b
second=$answer
say "b is active with epoch $second, $(($(millis) - frozen)) ms later"
ask live
bin/controllerd topic create audit "${topic[@]}" --server "$b" >/dev/null
ask pushed
say "all brokers obey b; it has created topic audit"

while (($(millis) - frozen < outlast)); do sleep 0.05; done
say "a has been frozen for $(($(millis) - frozen)) ms, its lease lasts $ttl: all that it sent is late"

ask release
say "what a had sent arrives: $answer"
kill -CONT "$pid_a"
thawed=$(millis)
await a.err '(not active any more)'
say "a is thawed after $((thawed - frozen)) ms; it gave up within $(($(millis) - thawed)) ms"
ask endpoint a
bin/controllerd topic create returns "${topic[@]}" --server "$a" >/dev/null
say "a stands by and passes on to b what it is asked: topic returns"

bin/controllerd controller resign --reason "to see whether a still can" --server "$b" >/dev/null
ask active a
third=$answer
ask live
bin/controllerd topic create stock "${topic[@]}" --server "$b" >/dev/null
ask pushed
say "b resigned: a is active again, with epoch $third, and all brokers obey it"

say "the account:"
ask verdict "$work"/broker-{1,2,3}.out
say "$answer"
