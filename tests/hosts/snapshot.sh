# Prints what a host is, a line for each fact, "KIND TEXT"; what always changes is left out.
export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
say() { sed "s/^/$1 /"; }

dpkg-query --show --showformat='${Package} ${Version} ${db:Status-Abbrev}\n' | say package
apt-mark showauto | say auto
find / -xdev \( -path /var/log -o -path /var/cache -o -path /var/lib/apt -o -path /tmp -o -path /var/tmp -o -path /lost+found \) -prune \
    -o ! -type d -printf '%p %M %u:%g %l\n' | say file
find / -xdev \( -path /var/cache -o -path /tmp -o -path /var/tmp \) -prune -o -type d -printf '%p %M %u:%g\n' | say directory
find /etc /boot /root /home -xdev -type f -print0 | sort -z | xargs -0 sha256sum | say content
systemctl list-unit-files --no-legend --no-pager | awk '{ print $1, $2 }' | say unit
systemctl list-units --all --no-legend --no-pager --plain --type=service,socket,timer |
    awk '$4 ~ /running|listening|waiting|exited|failed/ { print $1, $3, $4 }' | grep -v '^user' | say active
getent passwd | say user
getent group | say group
sysctl --all 2>/dev/null | say sysctl
ip -details -oneline link | sed -E 's/^[0-9]+: //; s/ (gso_max|gro_max|tso_max)[a-z_0-9]* [0-9]+//g; s/promiscuity.*//' | say link
ip -oneline address show scope global | sed -E 's/^[0-9]+: //; s/valid_lft.*//' | say address
ip route show table all | say route
ip -6 route show table all | grep -v fe80 | say route
ip rule | say rule
tc qdisc show | sed -E 's/qdisc ([a-z_]+) [0-9a-f]+:/qdisc \1/' | say qdisc
cut -d' ' -f1 /proc/modules | say module
ls /lib/modules | say modules
uname --kernel-release | say kernel
cat /proc/cmdline | say cmdline
sed -nE "s/^\s*menuentry '([^']+)'.*/\1/p" /boot/grub/grub.cfg | say boot
grub-editenv - list | say grubenv
nft list ruleset 2>/dev/null | say firewall
