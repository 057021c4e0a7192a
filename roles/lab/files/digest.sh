#!/bin/sh
# Prints a digest of what makes a world and its provisioned hosts: of the checkout $1, the inventory $2, the kernel's recipe $3,
# and the values $4 that the world's program is filled with.
set -eu
cd "$1"
{
    printf '%s\n' "$4"
    find modules roles/agent roles/clock roles/kernel_build roles/lab roles/modules roles/nic roles/packages roles/path roles/sysctl vars \
        plugins/modules plugins/module_utils playbooks/provision.yml .build/bin/dumbbell-agent "$2" "$3" "$(dirname "$3")" \
        -type f ! -name '*.pyc' ! -name README.md | sort | xargs -d '\n' sha256sum
} | sha256sum | cut -c1-12
