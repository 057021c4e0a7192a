#!/bin/sh
# Builds the module of the source directory $1 for the kernel $2 into $3: against the tree of an own kernel below $4, or that of
# Debian's headers.
set -eu
# Of hosts with the same kernel the first one builds for all; the others wait.
mkdir -p "$(dirname "$3")"
exec 9>"$3.lock"
flock 9
[ ! -e "$3" ] || exit 0
name=$(basename "$1")
for tree in "$4"/*/build "/usr/src/linux-headers-$2" none; do
    [ "$(cat "$tree/include/config/kernel.release" 2>/dev/null)" = "$2" ] && break
done
if [ "$tree" = none ]; then
    echo "no build tree of the kernel $2: neither in $4, nor linux-headers-$2 is installed here" >&2
    exit 1
fi
# User-Mode Linux is an architecture of its own, and its tree says so.
arch=$(sed -n 's/^# Linux\/\(\w*\) .*/\1/p' "$tree/.config")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R "$1/." "$work/"
make --silent --directory "$tree" ARCH="$arch" M="$work" modules >&2
mv "$work/$name.ko" "$3.part"
mv "$3.part" "$3"
