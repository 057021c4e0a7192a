#!/bin/sh
# Turns a plain Debian tree into the root of every lab host: $1 is the tree.
set -eu
root=$1
echo '/dev/root / ext4 defaults,noatime 0 1' >"$root/etc/fstab"
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/hostname"
: >"$root/etc/machine-id"

cat >"$root/usr/local/sbin/lab-seed" <<'SEED'
#!/bin/sh
# The second disk is the host's identity, the third the modules of its kernel, whatever this machine kind calls them.
set -eu
[ -b /dev/ubdb ] && disk=/dev/ubd || disk=/dev/vd

# Read-only and shared with other hosts: what this host adds to it lands on its own disk.
modules=/lib/modules/$(uname -r)
own=/var/lib/lab-modules/$(uname -r)
mkdir -p "$modules" "$own/upper" "$own/work"
mount -o ro "${disk}c" "$modules"
modprobe --quiet overlay || grep -qw overlay /proc/filesystems
mount -t overlay -o "lowerdir=$modules,upperdir=$own/upper,workdir=$own/work" overlay "$modules"

mkdir -p /run/lab-seed /root/.ssh
tar --extract --file "${disk}b" --directory /run/lab-seed
cd /run/lab-seed
install -m 0600 ssh_host_ed25519_key /etc/ssh/
install -m 0600 authorized_keys /root/.ssh/
install -m 0644 hostname hosts /etc/
hostname --file hostname
# NICs are called as the inventory says.
while read -r mac name; do
    found=$(grep -lxF "$mac" /sys/class/net/*/address | cut -d/ -f5)
    [ "$found" = "$name" ] || ip link set "$found" name "$name"
done <nics
ip -batch network
rm -rf /run/lab-seed
SEED
chmod 0755 "$root/usr/local/sbin/lab-seed"
systemctl --root "$root" --quiet enable lab-seed.service
systemctl --root "$root" --quiet set-default multi-user.target
# Without logind and its bus name systemctl asks PID 1 itself to reboot.
rm "$root/usr/share/dbus-1/system-services/org.freedesktop.login1.service"
# What a test host does not need, and what would wake up during a run.
systemctl --root "$root" --quiet mask \
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
    fstrim.timer getty.target console-getty.service systemd-logind.service systemd-networkd.service \
    systemd-timesyncd.service
