#!/bin/sh
# Turns a plain Debian tree into the root of every lab host: $1 is the tree.
set -eu
root=$1
echo '/dev/root / ext4 defaults,noatime 0 1' >"$root/etc/fstab"
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/hostname"
: >"$root/etc/machine-id"

# Modules of every kernel that the lab offers.
mkdir -p "$root/lib/modules"
cp -a /usr/lib/uml/modules/. "$root/lib/modules/"
for kernel in "$root"/lib/modules/*; do
    chroot "$root" depmod "${kernel##*/}"
done

cat >"$root/usr/local/sbin/lab-seed" <<'SEED'
#!/bin/sh
# The seed is the second disk, whatever this machine kind calls it.
set -eu
for disk in /dev/ubdb /dev/vdb; do
    [ -b "$disk" ] || continue
    mkdir -p /run/lab-seed /root/.ssh
    tar --extract --file "$disk" --directory /run/lab-seed
    cd /run/lab-seed
    install -m 0600 ssh_host_ed25519_key /etc/ssh/
    install -m 0600 authorized_keys /root/.ssh/
    install -m 0644 hostname hosts /etc/
    hostname --file hostname
    ip -batch network
    rm -rf /run/lab-seed
    exit
done
echo 'no seed disk' >&2
exit 1
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
