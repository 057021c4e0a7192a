"""No plugin of this directory is loaded without the Python package that it imports."""

from ansible_collections.dumbbell.testbed.plugins.plugin_utils.package import require

require()
