#!/bin/sh
# Prints a digest of what makes the state of provisioned hosts: of the checkout $1, the inventory $2, the kernel's recipe $3.
set -eu
cd "$1"
find modules roles/agent roles/clock roles/modules roles/nic roles/packages roles/path roles/sysctl vars plugins/modules plugins/module_utils playbooks/provision.yml .build/bin/dumbbell-agent "$2" "$3" "$(dirname "$3")" \
    -type f ! -name '*.pyc' | sort | xargs -d '\n' sha256sum | sha256sum | cut -c1-12
