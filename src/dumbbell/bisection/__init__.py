"""Which commit of a kernel changed a metric: ``git bisect`` chooses commits, and seeds of virtual time judge them."""
