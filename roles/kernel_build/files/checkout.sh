#!/bin/sh
# Brings the directory $4 to the tree $3 of the git repository $1 with the patches $5 and so on, in this order. $2 is the
# repository of a user that has the tree, or ''; nothing is written to it. Files that stay the same keep their times, so that
# make compiles only what depends on others.
set -eu
[ -d "$1" ] || git init --quiet --bare "$1"
if [ -n "$2" ]; then
    GIT_ALTERNATE_OBJECT_DIRECTORIES=$(git -C "$2" rev-parse --path-format=absolute --git-path objects)
    export GIT_ALTERNATE_OBJECT_DIRECTORIES
fi
export GIT_DIR="$1" GIT_INDEX_FILE="$4.index.new"
tree=$3
dir=$4
shift 4

mkdir -p "$dir"
trap 'rm -f "$dir.index.new"' EXIT
git read-tree "$tree"
for patch; do
    git apply --cached --whitespace=nowarn "$patch"
done
patched=$(git write-tree)
GIT_INDEX_FILE="$dir.index" git --work-tree="$dir" read-tree --reset -u "$patched"
