"""A run directory that no testbed has made: a small fluid model of cubic flows through one queue.

It has the shape of a real one, to test the store, the verdict and the report, and is never a result.
"""

from synthetic.constants import REPOSITORY, RUN_ID, T0_UNIX_NS
from synthetic.fluid import MSS, PACKET_BITS
from synthetic.hosts import PATH_TRIM_US, inventory
from synthetic.reports import ping_text
from synthetic.run import write_points, write_run
from synthetic.spool import batch_bytes, write_spool

__all__ = [
    "MSS",
    "PACKET_BITS",
    "PATH_TRIM_US",
    "REPOSITORY",
    "RUN_ID",
    "T0_UNIX_NS",
    "batch_bytes",
    "inventory",
    "ping_text",
    "write_points",
    "write_run",
    "write_spool",
]
