#!/bin/sh
# Whether the lab is up as it was booted last. $1 has a line "PIDFILE:PID" for each host; the other arguments are
# files and directories of which the lab is made. It is not up if one of these is newer, or a process has ended.
set -eu
up=$1
shift
[ -s "$up" ] && [ -z "$(find "$@" -type f -newer "$up" ! -name '*.pyc' -print -quit)" ] || exit 1
while IFS=: read -r file pid; do
    [ "$(cat "$file" 2>/dev/null)" = "$pid" ] && kill -0 "$pid" 2>/dev/null || exit 1
done <"$up"
