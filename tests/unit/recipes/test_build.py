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
MODPOST = 'ERROR: modpost: "tcp_more" [net/ipv4/tcp_cubic.ko] undefined!'
LINKER = """\
ld: net/ipv4/tcp.o: in function `tcp_init':
tcp.c:(.init.text+0x1): undefined reference to `tcp_more'
"""


@pytest.mark.parametrize(
    ("said", "first"),
    [
        (COMPILER, "net/ipv4/tcp_cubic.c:62:2: error: #error not now"),
        (f"{MODPOST}\nmake[2]: *** [scripts/Makefile.modpost:147: Module.symvers] Error 1", MODPOST),
        (LINKER, " ".join(LINKER.split())),
    ],
)
def test_the_first_error_is_one_line(said: str, first: str) -> None:
    assert DoesNotBuild(said).first_error == first
