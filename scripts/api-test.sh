#!/bin/sh
# Tests the HTTP surface against its own description, `/openapi.json`: a server on a data directory of its own, with keys, is
# sent thousands of requests by schemathesis, right and wrong ones. Any answer that the description does not have fails.
#
# EXAMPLES is the most requests per operation and phase, SEED makes a run the same again.
set -eu

SCHEMATHESIS=schemathesis==4.32.5
EXAMPLES=${EXAMPLES:-100}
venv=target/api-test
weir=target/release/weir
data=$(mktemp -d)
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; rm -rf "$data"' EXIT INT TERM

if ! "$venv/bin/schemathesis" --version 2>/dev/null | grep -q "${SCHEMATHESIS#*==}"; then
  ${PYTHON:-python3} -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "$SCHEMATHESIS"
fi

"$weir" serve --listen 127.0.0.1:0 --data-dir "$data" >"$data/log" 2>&1 &
server=$!
for _ in $(seq 100); do
  url=$(sed -n 's/.*\(http:\/\/127\.0\.0\.1:[0-9]*\).*/\1/p' "$data/log" | head -n 1)
  [ -n "$url" ] && break
  kill -0 "$server" 2>/dev/null || { cat "$data/log"; exit 1; }
  sleep 0.1
done
export WEIR_URL=$url WEIR_TOKEN="$(cat "$data/operator.key")" WEIR_TENANT=acme
"$weir" tenants set acme >/dev/null

"$venv/bin/schemathesis" --config-file scripts/api-test.toml run "$url/openapi.json" \
  --checks all --max-examples "$EXAMPLES" --continue-on-failure ${SEED:+--seed "$SEED"} "$@" || {
  grep -E 'ERROR|panicked' "$data/log" | tail -n 20
  exit 1
}
if grep -E 'panicked|internal error' "$data/log"; then exit 1; fi
