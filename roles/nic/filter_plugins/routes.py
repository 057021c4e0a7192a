"""Which of a host's routes leave by which interface."""

from __future__ import annotations

from ipaddress import ip_address, ip_interface

from ansible.errors import AnsibleFilterError


def by_device(routes, interfaces):
    """Device to its routes: those whose gateway is on the network of the interface's address."""
    networks = {each["device"]: ip_interface(each["address"]).network for each in interfaces}
    sorted_routes = {device: [] for device in networks}
    for route in routes:
        devices = [device for device, network in networks.items() if ip_address(route["via"]) in network]
        if not devices:
            raise AnsibleFilterError(f"the gateway of {route} is on the network of no experiment interface")
        sorted_routes[devices[0]].append(route)
    return sorted_routes


class FilterModule:
    """Ansible finds the filters by this name."""

    def filters(self):
        """Names in templates."""
        return {"by_device": by_device}
