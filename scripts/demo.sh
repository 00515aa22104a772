#!/bin/sh
# What `make demo` shows: a function with a model, from upload to zero and back. Everything is built by then.
set -eu
cd "$(dirname "$0")/.."

. scripts/server.sh

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() {
    printf '$ weir %s\n' "$*"
    "$weir" "$@"
}

serve --dev
echo "A server is at $WEIR_URL"

say "Upload a model and deploy a function that may use it"
show models put magika models/magika/model.onnx
show deploy file-type examples/target/wasm32-wasip2/release/file_type.wasm --model magika --set idle_timeout=2s
show functions

say "Call it on real files: the first call wakes it from zero"
for file in rust.rs english.txt png.png csv.csv gzip.gz; do
    show call file-type --file "examples/file-type/samples/$file"
done

say "Its state: one cold start, and how long its phases took"
show status file-type

say "Two seconds without calls, and nothing of it is left in memory"
tries=0
until "$weir" functions | grep -q 'file-type *zero'; do
    tries=$((tries + 1))
    [ "$tries" -le 100 ] || { echo "it did not go to zero" >&2; exit 1; }
    sleep 0.2
done
show functions
show models list

say "The next call wakes it again"
show call file-type --file examples/file-type/samples/sqlite.db
show status file-type

say "Done: the server stops and its data is removed"
