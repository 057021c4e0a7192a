#!/bin/sh
# Prints the last lines that the console $1 has of the kernel $2. If that kernel is the one in the machine now, ends the
# machine (its process id is in the file $3): supervision starts it again, with the kernel before it.
set -eu
boots='^dumbbell: .* boots '
tr -d '\r' <"$1" | awk -v boots="$boots" -v kernel="$2" '
    $0 ~ boots { on = $NF == kernel; if (on) lines = "" }
    on && NF { lines = lines $0 "\n" }
    END { printf "%s", lines }' | tail -n 40
if [ "$(grep -a "$boots" "$1" | tail -n 1 | sed 's/.* //')" = "$2" ]; then
    kill -KILL "$(cat "$3")"
fi
