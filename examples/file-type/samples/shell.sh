#!/bin/bash
# Keep the newest backups and remove the others.
set -euo pipefail

keep="${1:-7}"
folder="${BACKUP_FOLDER:-/var/backups/gauges}"

if [[ ! -d "$folder" ]]; then
    echo "no such folder: $folder" >&2
    exit 1
fi

count=0
for file in $(ls -1t "$folder"/*.tar.gz 2>/dev/null); do
    count=$((count + 1))
    if (( count > keep )); then
        echo "removing $file"
        rm -f -- "$file"
    fi
done

case "$count" in
    0) echo "nothing to do" ;;
    *) echo "saw $count backups" ;;
esac
