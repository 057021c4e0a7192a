#!/bin/sh
# Makes a disk, $4, as the installer of the Debian release $1 leaves it: standard system utilities, SSH server, serial console,
# timesyncd, unattended-upgrades, the network by $2 (ifupdown or networkd), the user admin with sudo and the password in the file
# $3, none for root. Packages come through the proxy $6. The disk has $5 bytes, and boots by its own GRUB. $7 is qemu's accelerator.
set -eu
release=$1 network=$2 password=$3 disk=$4 size=$5 proxy=$6 accel=$7
first=1048576 # byte of the partition
part=$disk.part
root=$disk.root
boot=$disk.boot
rm -rf "$part" "$root" "$boot"
trap 'rm -rf "$part" "$root" "$boot"' EXIT

mmdebstrap --quiet --variant=standard \
    --include=apparmor,console-setup,grub-pc,linux-image-amd64,locales,openssh-server,sudo,systemd-timesyncd,unattended-upgrades \
    --essential-hook='echo grub-pc grub-pc/install_devices multiselect /dev/vda | chroot "$1" debconf-set-selections' \
    "$release" "$root"
uuid=$(cat /proc/sys/kernel/random/uuid)
echo "UUID=$uuid / ext4 errors=remount-ro 0 1" >"$root/etc/fstab"
echo "Acquire::http::Proxy \"$proxy\";" >"$root/etc/apt/apt.conf"
sed -i -e 's/^GRUB_CMDLINE_LINUX=.*/GRUB_CMDLINE_LINUX="console=ttyS0,115200n8"/' \
    -e '$aGRUB_TERMINAL=serial' -e '$aGRUB_SERIAL_COMMAND="serial --speed=115200 --unit=0 --word=8 --parity=no --stop=1"' \
    "$root/etc/default/grub"
chroot "$root" useradd --create-home --shell /bin/bash --groups sudo admin
echo "admin:$(cat "$password")" | chroot "$root" chpasswd
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/resolv.conf"
: >"$root/etc/machine-id"
if [ "$network" = networkd ]; then
    systemctl --root "$root" --quiet enable systemd-networkd.service
    chroot "$root" dpkg --purge ifupdown >/dev/null
fi
mkdir "$boot"
cp "$root"/boot/vmlinuz-* "$boot/linux"
cp "$root"/boot/initrd.img-* "$boot/initrd"

# GRUB must see the disk, so the system itself installs it, as its first program.
cat >"$root/finish" <<'FINISH'
#!/bin/sh
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
end() {
    echo "install_disk: $?"
    sync
    mount -o remount,ro /
    echo o >/proc/sysrq-trigger
    sleep 60
}
trap end EXIT
mount -t tmpfs tmpfs /tmp
grub-install /dev/vda
update-grub
FINISH
chmod 755 "$root/finish"
truncate --size "$size" "$part"
echo "start=$((first / 512)), type=83, bootable" | sfdisk --quiet "$part"
mkfs.ext4 -q -F -U "$uuid" -E "offset=$first" -d "$root" "$part" "$(((size - first) / 1024))k"
qemu-system-x86_64 -machine q35 -accel "$accel" -cpu max -m 512M -nodefaults -no-user-config -display none -no-reboot \
    -serial stdio -kernel "$boot/linux" -initrd "$boot/initrd" \
    -append "console=ttyS0 root=UUID=$uuid rw init=/finish panic=1" \
    -drive "file=$part,if=virtio,format=raw,cache=unsafe" </dev/null | tee "$boot/console"
grep -q '^install_disk: 0' "$boot/console"
# Files of a host are put on its disk from outside: a journal that is left would undo parts of that when the host boots.
if dumpe2fs -h "$part?offset=$first" 2>/dev/null | grep needs_recovery; then
    echo "$disk: its root was not remounted read-only at the end" >&2
    exit 1
fi
debugfs -w -R 'rm /finish' "$part?offset=$first"
mv "$part" "$disk"
