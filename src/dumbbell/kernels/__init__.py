"""Kernels to build: what a recipe or a command line asks for, its source, its patches, and the tree of both.

The role ``kernel_build`` compiles them. A mistake in what a user asks for is a :class:`KernelError`.
"""

from dumbbell.kernels.build import DoesNotBuild, build, check, find
from dumbbell.kernels.kernel import Kernel
from dumbbell.kernels.problems import KernelError
from dumbbell.kernels.recipe import Asked, Recipe, asked, short

__all__ = [
    "Asked",
    "DoesNotBuild",
    "Kernel",
    "KernelError",
    "Recipe",
    "asked",
    "build",
    "check",
    "find",
    "short",
]
