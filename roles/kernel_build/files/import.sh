#!/bin/sh
# Imports Debian's source package $1 of version $2 into the git repository $3, as the tree of the tag $4.
set -eu
[ -d "$3" ] || git init --quiet --bare "$3"
part=$(mktemp --directory "$3.XXXXXX")
trap 'rm -rf "$part"' EXIT
cd "$part"
apt-get download -o APT::Sandbox::User=root "${1%%=*}=$2"
mkdir tree
dpkg-deb --fsys-tarfile ./*.deb |
    tar --extract --to-stdout --wildcards './usr/src/linux-source-*.tar.xz' |
    tar --extract --xz --directory tree --strip-components 1
export GIT_DIR="$3" GIT_WORK_TREE="$part/tree" GIT_INDEX_FILE="$part/index"
# As one pack, in two thirds of the time that 90 000 objects in files of their own take.
git -c core.bigFileThreshold=1 -c core.compression=1 add --all --force .
git tag --force "$4" "$(git write-tree)" >/dev/null
