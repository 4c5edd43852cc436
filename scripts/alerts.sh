#!/usr/bin/env bash
# Checks the alerts and the dashboard in deploy with promtool: every alert fires
# where it should and only there, every expression can be read.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v promtool >/dev/null; then
  echo 'promtool is missing: install the package "prometheus" of Debian, or https://prometheus.io/download' >&2
  exit 1
fi

promtool check rules deploy/prometheus/alerts.yaml
promtool test rules deploy/prometheus/alerts_test.yaml

# The expressions of the dashboard, as rules, with its variables replaced.
rules=$(mktemp --suffix=.yaml)
trap 'rm -f "$rules"' EXIT
{
  echo 'groups: [{name: dashboard, rules: ['
  sed -n 's/^ *"expr": "\(.*\)",$/\1/p' deploy/grafana/controllerd.json |
    sed -e 's/\\"/"/g' -e 's/\$__rate_interval/5m/g' -e "s/.*/{record: dashboard, expr: '&', labels: {n: \"/" | awk '{ print $0 NR "\"}}," }'
  echo ']}]'
} >"$rules"
count=$(grep -c '^{record' "$rules")
want=$(grep -c '"expr":' deploy/grafana/controllerd.json)
[ "$count" = "$want" ] || { echo "found $count of $want expressions of the dashboard" >&2; exit 1; }
promtool check rules "$rules"
