"""Sysctls: names and values."""

from pathlib import Path, PurePosixPath

import pytest
from conftest_modules import host, sysctl
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("net.ipv4.tcp_rmem", "net/ipv4/tcp_rmem"),
        ("net.ipv4.conf.eth0/100.rp_filter", "net/ipv4/conf/eth0.100/rp_filter"),
    ],
)
def test_names_are_files(name: str, file: str) -> None:
    assert sysctl.path(name) == PurePosixPath(file)


@pytest.mark.parametrize("name", ["", ".", "net..ipv4", "net.//.//.etc.passwd", "/", "net.ipv4."])
def test_names_that_leave_the_tree_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a sysctl"):
        sysctl.path(name)


@given(st.text(alphabet="ab./", max_size=12))
def test_no_name_leaves_the_tree(name: str) -> None:
    try:
        file = sysctl.path(name)
    except ValueError:
        return
    assert not file.is_absolute()
    assert ".." not in file.parts


@pytest.mark.parametrize(
    ("value", "text"),
    [(1, "1"), (True, "1"), (False, "0"), ("4096\t131072\t6291456\n", "4096 131072 6291456"), (" fq ", "fq")],
)
def test_values_have_one_form(value: object, text: str) -> None:
    assert sysctl.canonical(value) == text


@pytest.mark.parametrize(("mode", "unloaded"), [(0o444, False), (0o644, True)], ids=["shared", "own"])
def test_hosts_of_one_kernel_unload_no_module_of_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, unloaded: bool
) -> None:
    """A host looked for what it could do while another one had just loaded a qdisc's module."""
    file = tmp_path / "net/ipv4/tcp_allowed_congestion_control"
    file.parent.mkdir(parents=True)
    file.write_text("cubic\n")
    file.chmod(mode)
    of = vars(host)
    monkeypatch.setattr(of["sysctl"], "ROOT", tmp_path)
    monkeypatch.setattr(of["baseline"], "read", lambda *_: ["veth", "sch_htb"])
    asked: list[list[str]] = []

    def call(command: list[str]) -> tuple[int, str, str]:
        asked.append(command)
        return 0, "", ""

    monkeypatch.setattr(host, "call", call)
    host.unload(["veth"])
    assert asked == ([["modprobe", "-r", "-a", "sch_htb"]] if unloaded else [])
