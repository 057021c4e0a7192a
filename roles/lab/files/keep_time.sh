#!/bin/bash
# Keeps time going in the User-Mode Linux of process $1, until it ends. Its timer goes off once, and is set anew by what handles
# it. One that goes off while the one before is still handled is dropped (unblock_signals() in Linux' arch/um/os-Linux/signal.c),
# as happens on a busy machine: then time stands still in that host, and its idle loop spins. How much of a core it gets to do so
# tells nothing, for others may stand still on that core too; but it no longer waits for anything. The timer's signal sets it
# going again; one too many does no harm.
set -u
catches_sigalrm='^SigCgt:.*[2367abef].{3}$'
waits() {
    grep ^voluntary_ctxt_switches "/proc/$1/status"
} 2>/dev/null
before=$(waits "$1") || exit 0
while sleep 0.5 && now=$(waits "$1"); do
    # Before it can take the signal, it would die of it.
    if [[ $now == "$before" ]] && grep -Eq "$catches_sigalrm" "/proc/$1/status"; then
        kill -ALRM "$1"
    fi
    before=$now
done
