#!/bin/sh
# Looks at deploy/observability with promtool (of Prometheus; Debian has it as `prometheus`). Without it there is nothing to do:
# the suite looks at the names of metrics by itself.
set -eu
cd "$(dirname "$0")/../deploy/observability"

if ! command -v promtool >/dev/null 2>&1; then
    echo "deploy/observability is not looked at: there is no promtool"
    exit 0
fi
promtool check rules alerts.yml
promtool test rules alerts.test.yml
# The example names a key file that is not here.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp prometheus.yml alerts.yml "$work" && : >"$work/weir.key"
promtool check config "$work/prometheus.yml"
