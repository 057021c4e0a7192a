#!/bin/sh
# Unpacks the source $1 of version $2 into the directory $4: a Debian package that lies in $3, or a git tree.
set -eu
case $1 in
*/*)
    git -C "$1" archive "$2" | tar --extract --directory "$4"
    ;;
*)
    dpkg-deb --fsys-tarfile "$3/${1%%=*}_$(echo "$2" | sed 's/:/%3a/g')_all.deb" |
        tar --extract --to-stdout --wildcards './usr/src/linux-source-*.tar.xz' |
        tar --extract --xz --directory "$4" --strip-components 1
    ;;
esac
