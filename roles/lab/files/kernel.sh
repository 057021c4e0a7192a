#!/bin/sh
# Makes what a lab host boots, $2, of a kernel's Debian package, $1: a file, or a name for apt-get.
#   $2/linux        what the machine starts: a program (User-Mode Linux), or an image with $2/initrd (qemu)
#   $2/xstate.so    a library that the program has to load before others
#   $2/modules.img  a file system, /lib/modules/RELEASE of the host
#   $2/release      what `uname -r` will say there
set -eu
part=$2.part
rm -rf "$part"
mkdir -p "$part/root" "$part/tree/lib/modules"
trap 'rm -rf "$part"' EXIT

case $1 in
*/*) deb=$1 ;;
*)
    # linux-image-cloud-amd64 and the like hold nothing but the name of the newest kernel of their kind.
    real=$(apt-cache show --no-all-versions "$1" | sed -nE 's/^Depends:.*\b(linux-image-[0-9][^ ,]*).*/\1/p')
    (cd "$part" && apt-get download -o APT::Sandbox::User=root "${real:-$1}" >&2)
    deb=$(echo "$part"/*.deb)
    ;;
esac
dpkg-deb --extract "$deb" "$part/root"

if [ -e "$part/root/usr/bin/linux.uml" ]; then
    mv "$part/root/usr/bin/linux.uml" "$part/linux"
    gcc -shared -fPIC -O2 -o "$part/xstate.so" "$(dirname "$0")/xstate.c"
    modules=$part/root/usr/lib/uml/modules
else
    mv "$part"/root/boot/vmlinuz-* "$part/linux"
    modules=$part/root/lib/modules
fi
release=$(ls "$modules")
echo "$release" >"$part/release"
mv "$modules/$release" "$part/tree/lib/modules/"
tree=$part/tree/lib/modules/$release
depmod --basedir "$part/tree" "$release"

if [ -e "$part/root/usr/lib/uml" ]; then
    :
else
    # The few modules between the kernel and its root; Debian's own initramfs is made for hosts that are installed.
    mkdir -p "$part/initrd.d/bin" "$part/initrd.d/dev" "$part/initrd.d/proc" "$part/initrd.d/root"
    cp /bin/busybox "$part/initrd.d/bin/"
    modprobe --all --show-depends --dirname "$part/tree" --set-version "$release" virtio_pci virtio_blk virtio_net ext4 |
        sed -n 's/^insmod //p' | awk '!seen[$1]++ { print $1 }' | while read -r file; do
        name=$(basename "${file%.xz}")
        case $file in
        *.xz) xz --decompress --stdout "$file" >"$part/initrd.d/$name" ;;
        *) cp "$file" "$part/initrd.d/$name" ;;
        esac
        echo "insmod /$name"
    done >"$part/insmods"
    cat >"$part/initrd.d/init" <<INIT
#!/bin/busybox sh
/bin/busybox --install /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
$(cat "$part/insmods")
# lab_probe: the machine's owner wants to know whether this kernel starts at all.
grep -q lab_probe /proc/cmdline && echo 'lab_probe: up' && poweroff -f
mount -t ext4 /dev/vda /root
exec switch_root /root /sbin/init
INIT
    chmod 0755 "$part/initrd.d/init"
    (cd "$part/initrd.d" && find . | cpio --quiet --create --format newc) | gzip -1 >"$part/initrd"
fi

# Read-only, shared by all hosts: without a journal, and with little room to spare.
mkfs.ext4 -q -F -O '^has_journal' -m 0 -d "$tree" "$part/modules.img" "$(($(du -sk "$tree" | cut -f1) * 5 / 4 + 8192))k"
rm -rf "$part/root" "$part/tree" "$part/initrd.d" "$part/insmods" "$part"/*.deb
mv "$part" "$2"
