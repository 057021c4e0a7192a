"""Text in statements of InfluxQL, whose literals know the escapes \\\\, \\', \\" and \\n."""

from __future__ import annotations


def influxql(text, quote="'"):
    """The text as a string, or with double quotes as a name."""
    escaped = str(text).replace("\\", "\\\\").replace(quote, "\\" + quote).replace("\n", "\\n")
    return quote + escaped + quote


class FilterModule:
    """Ansible finds the filters by this name."""

    def filters(self):
        """Names in templates."""
        return {"influxql_string": influxql, "influxql_name": lambda text: influxql(text, '"')}
