# For scripts that want a server of their own: `. scripts/server.sh; serve --dev`. What it keeps is removed at the script's end.

weir=target/release/weir
data=$(mktemp -d)
log=$data/server.log

# Starts a server on any port, with these flags, waits until it listens, and sets WEIR_URL.
serve() {
    "$weir" serve --listen 127.0.0.1:0 --data-dir "$data/weir" "$@" 2>"$log" &
    server=$!
    trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; rm -rf "$data"' EXIT
    trap 'exit 1' INT TERM
    tries=0
    until WEIR_URL=$(sed -n 's/.*listening on \(http:[^ ]*\).*/\1/p' "$log") && [ -n "$WEIR_URL" ]; do
        tries=$((tries + 1))
        if [ "$tries" -gt 100 ] || ! kill -0 "$server" 2>/dev/null; then
            echo "the server did not start:" >&2
            cat "$log" >&2
            exit 1
        fi
        sleep 0.1
    done
    export WEIR_URL
}
