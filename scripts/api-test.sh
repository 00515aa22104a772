#!/bin/sh
# What `make api-test` does: a server with keys, on a data directory of its own, is sent thousands of requests, right and
# wrong ones, made from its own description by schemathesis. Each answer must be one that the description has.
#
# EXAMPLES is the most requests for an operation in one phase; SEED makes a run the same again.
set -eu
cd "$(dirname "$0")/.."

release=4.32.5
python=target/api-test
if [ "$("$python/bin/schemathesis" --version 2>/dev/null)" != "schemathesis, version $release" ]; then
    "${PYTHON:-python3}" -m venv "$python"
    "$python/bin/pip" install --quiet --disable-pip-version-check "schemathesis==$release"
fi

. scripts/server.sh
serve
WEIR_TOKEN=$(cat "$data/weir/operator.key")
WEIR_TENANT=api-test
export WEIR_TOKEN WEIR_TENANT

# Things to find, change and delete: see [dictionaries] in api-test.toml.
"$weir" tenants set api-test >/dev/null
"$weir" models put magika models/magika/model.onnx >/dev/null 2>&1
for number in $(seq 10); do
    "$weir" models put "m$number" models/magika/model.onnx >/dev/null 2>&1
    "$weir" deploy "f$number" examples/target/wasm32-wasip2/release/file_type.wasm --model magika >/dev/null 2>&1
done

failed=0
# All checks are on unless the file says otherwise; to name them here would be to overrule it.
"$python/bin/schemathesis" --config-file scripts/api-test.toml run "$WEIR_URL/openapi.json" \
    --max-examples "${EXAMPLES:-100}" --continue-on-failure ${SEED:+--seed "$SEED"} "$@" || failed=1
if grep -E 'panicked|internal error' "$log"; then failed=1; fi
exit "$failed"
