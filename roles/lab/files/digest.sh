#!/bin/sh
# Prints a digest of what makes a world and its provisioned hosts: of Dumbbell's files in $1, the inventory $2, the kernel's
# recipe $3, the agent $4, and the values $5 that the world's program is filled with. Where Dumbbell is makes no difference.
set -eu
cd "$1/ansible_collections/dumbbell/testbed"
from_here() { realpath --no-symlinks --relative-to=. "$1"; }
{
    printf '%s\n' "$5"
    find "$(from_here "$1/modules")" roles/agent roles/clock roles/kernel_build roles/lab roles/modules roles/nic roles/packages roles/path \
        roles/sysctl vars plugins/modules plugins/module_utils playbooks/provision.yml "$(from_here "$4")" "$(from_here "$2")" \
        "$(from_here "$3")" "$(from_here "$(dirname "$3")")" \
        -type f ! -name '*.pyc' ! -name README.md | sort | xargs -d '\n' sha256sum
} | sha256sum | cut -c1-12
