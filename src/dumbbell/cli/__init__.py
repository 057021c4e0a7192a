"""Commands, each in the module of its name.

``fabfile.py`` has those of ``fab``, and imports them when they run. ``suite`` and ``nightly`` are also run as
``python -m dumbbell.cli.NAME``: by make, and by the timer of a night.
"""
