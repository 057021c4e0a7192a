#!/bin/sh
# Packs the kernel of release $1 that was built in ./build into ./result.
set -eu
package=pack/linux-image-$1
modules=$package/usr/lib/uml/modules
rm -rf pack
mkdir -p "$package/DEBIAN" "$package/usr/bin"
install build/linux "$package/usr/bin/linux.uml"
make --silent --directory build ARCH=um modules_install INSTALL_MOD_PATH="$PWD/pack/mod" DEPMOD=true
mkdir -p "$package/usr/lib/uml"
mv pack/mod/lib/modules "$modules"
rm -f "$modules/$1/build" "$modules/$1/source"
cat >"$package/DEBIAN/control" <<EOF
Package: linux-image-$1
Version: 1
Architecture: $(dpkg --print-architecture)
Maintainer: Dumbbell <root@localhost>
Description: Linux $1 for User-Mode Linux
EOF
dpkg-deb --root-owner-group -Zzstd --build "$package" result >/dev/null
rm -rf pack

# Makefiles, headers and tools: what kbuild reads to build a module.
cd build
{
    printf '%s\n' .config Makefile Module.symvers
    find arch/um arch/x86 include \( -type f -o -type l \) ! -name '*.o' ! -name '*.c' ! -name '*.S' ! -name '*.cmd' ! -name '*.a'
    find scripts tools/include \( -type f -o -type l \) ! -name '*.o' ! -name '*.cmd'
} | sort -u | tar --create --files-from - | { mkdir ../result/build && tar --extract --directory ../result/build; }
