#!/bin/bash
# Keeps time going in the User-Mode Linux of process $1, until it ends. Its timer goes off once, and is set anew by what handles
# it. One that goes off while the one before is still handled is dropped (unblock_signals() in Linux' arch/um/os-Linux/signal.c),
# as happens on a busy machine: then time stands still in that host, and its idle loop spins. The timer's signal sets it going
# again; one too many does no harm.
set -u
interval_s=0.5 spinning=45 # of 50 hundredths of a second
catches_sigalrm='^SigCgt:.*[2367abef].{3}$'
used() {
    local stat
    read -r -a stat <"/proc/$1/stat" && echo $((stat[13] + stat[14])) # utime and stime
} 2>/dev/null
before=$(used "$1") || exit 0
while sleep $interval_s && now=$(used "$1"); do
    # Before it can take the signal, it would die of it.
    if ((now - before >= spinning)) && grep -Eq "$catches_sigalrm" "/proc/$1/status"; then
        kill -ALRM "$1"
    fi
    before=$now
done
