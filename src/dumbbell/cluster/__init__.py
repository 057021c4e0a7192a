"""Points on many machines, by Dask.

A controller (:mod:`.points`) sends each point to a worker of a Dask cluster. The worker (:mod:`.worker`)
runs its world and sends back the point's directory. :mod:`.asked` starts a cluster, or connects to one.
"""

ADDRESS = "DUMBBELL_CLUSTER"  # environment: the cluster that playbooks use, as --cluster takes it


class ClusterError(Exception):
    """A cluster cannot be had, or was lost; the message says what to do."""
