#!/bin/sh
# Makes the disk of one host, $2, of an installed one, $1, with the files below the directory $3.
set -eu
part=$2.part
trap 'rm -f "$part" "$part.commands"' EXIT
cp --sparse=always "$1" "$part"
(cd "$3" && find . -type f | while read -r file; do
    printf 'rm %s\nwrite %s %s\n' "${file#.}" "$3/$file" "${file#.}"
done) >"$part.commands"
# It says what went wrong, and ends as if nothing had. A file that is new cannot be removed.
said=$(debugfs -w -f "$part.commands" "$part?offset=1048576" 2>&1 |
    grep -Ev '^debugfs|^Allocated inode|^rm: File not found' || true)
if [ -n "$said" ]; then
    echo "$said" >&2
    exit 1
fi
mv "$part" "$2"
