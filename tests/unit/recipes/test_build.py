"""What is said of a kernel that does not build."""

from __future__ import annotations

import pytest

from dumbbell.kernels.build import DoesNotBuild

# Of gcc and make of a build with two jobs.
COMPILER = """\
net/ipv4/tcp_cubic.c:62:2: error: #error not now
   62 | #error not now
      |  ^~~~~
make[4]: *** [scripts/Makefile.build:294: net/ipv4/tcp_cubic.o] Error 1
make[4]: *** Waiting for unfinished jobs....
make[3]: *** [scripts/Makefile.build:555: net/ipv4] Error 2
make: *** [Makefile:260: __sub-make] Error 2
"""
GIT = "fix.patch does not apply: net/ipv4/tcp.c:12"


@pytest.mark.parametrize(
    ("said", "first"), [(COMPILER, "net/ipv4/tcp_cubic.c:62:2: error: #error not now"), (GIT, GIT)]
)
def test_the_compilers_first_error_is_named(said: str, first: str) -> None:
    assert DoesNotBuild(said).first_error == first
