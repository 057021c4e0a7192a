#!/bin/sh
# Prints a hash of all files of the directory $1, by name and content.
set -eu
cd "$1"
find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-12
