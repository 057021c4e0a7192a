#!/bin/sh
# Says whether this machine can carry the virtual lab, before anything is changed.
fail() {
    echo "Dumbbell's virtual lab cannot run here: $1" >&2
    exit 1
}
[ "$(id -u)" -eq 0 ] ||
    fail "it needs root (found user $(id -un)). Run the same command as root."
# A device node may exist without a driver behind it: opening it is the test.
(: <>/dev/net/tun) 2>/dev/null ||
    fail "/dev/net/tun cannot be opened. Load the module 'tun', or give this container the device."
unshare --net true 2>/dev/null && command -v ip >/dev/null ||
    fail "network namespaces ('ip netns') do not work. It needs iproute2, CONFIG_NET_NS and CAP_SYS_ADMIN."
for tool in python3 go; do
    command -v "$tool" >/dev/null || fail "'$tool' is not installed. It needs Python 3.11 with venv, and Go."
done
