"""Commands for people, under the name ``fab``: those of :mod:`dumbbell.cli.commands`."""

from invoke import Collection

from dumbbell.cli import commands

namespace = Collection.from_module(commands)
