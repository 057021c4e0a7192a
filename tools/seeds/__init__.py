"""Published experiments, made again: what the originals show, the runs that answer it, ``docs/seeds/``."""
