#!/bin/sh
# Says whether this machine can carry the virtual lab (`lab`, the default), or virtual time (`virtual`), before anything is changed.
what=${1:-lab}
fail() {
    [ "$what" = lab ] && name="virtual lab" || name="virtual time"
    echo "Dumbbell's $name cannot run here: $1" >&2
    exit 1
}
[ "$(id -u)" -eq 0 ] ||
    fail "it needs root (found user $(id -un)). Run the same command as root."
[ "$(uname -m)" = x86_64 ] ||
    fail "User-Mode Linux needs a processor of the architecture x86_64 (found $(uname -m))."
unshare --mount true 2>/dev/null ||
    fail "mount namespaces do not work. It needs CAP_SYS_ADMIN: give this container the capability."
if [ "$what" = lab ]; then
    # A device node may exist without a driver behind it: opening it is the test. Where there is none, that would make a file.
    [ -c /dev/net/tun ] && (: <>/dev/net/tun) 2>/dev/null ||
        fail "/dev/net/tun cannot be opened. Load the module 'tun', or give this container the device."
    unshare --net true 2>/dev/null && command -v ip >/dev/null ||
        fail "network namespaces ('ip netns') do not work. It needs iproute2, CONFIG_NET_NS and CAP_SYS_ADMIN."
fi
for tool in python3 go; do
    command -v "$tool" >/dev/null || fail "'$tool' is not installed. It needs Python 3.11 with venv, and Go."
done
