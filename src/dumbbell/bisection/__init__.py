"""Which commit of a kernel changed a metric: ``git bisect`` chooses, and seeds of virtual time judge."""
