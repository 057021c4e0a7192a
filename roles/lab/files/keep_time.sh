#!/bin/bash
# Keeps time going in the User-Mode Linux of process $1, until it ends. Its timer, set anew each time, is lost when it expires
# while the kernel is still at work on the time before, as Linux 6.1 is on a busy machine: no more time passes in that host,
# and its idle loop spins. The signal of that timer sets it going again; one too many does no harm.
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
