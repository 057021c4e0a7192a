#!/bin/sh
# Reads the files of an image, $1, into the directory $2.
set -eu
rm -rf "$2.part"
mkdir "$2.part"
# It says what went wrong, and ends as if nothing had.
said=$(cd "$2.part" && debugfs -R 'rdump / .' "$1" 2>&1 | grep -v '^debugfs ' || true)
if [ -n "$said" ]; then
    echo "$said" >&2
    exit 1
fi
rmdir "$2.part/lost+found"
mv "$2.part" "$2"
