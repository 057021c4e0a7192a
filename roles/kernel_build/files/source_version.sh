#!/bin/sh
# Prints what identifies a kernel's source: the version of a Debian package, or the id of a git tree as it stands,
# changes that are not committed included.
set -eu
case $1 in
*/*)
    cd "$1"
    index=$(mktemp)
    trap 'rm -f "$index"' EXIT
    cp "$(git rev-parse --git-path index)" "$index"
    export GIT_INDEX_FILE="$index"
    git add --all .
    git write-tree
    ;;
*)
    apt-cache show --no-all-versions "$1" | sed -n 's/^Version: //p' | grep .
    ;;
esac
