"""``fab`` as users call it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from recipes import trees

from dumbbell.report import vector

REPOSITORY = Path(__file__).parents[2]


def fab(*arguments: str) -> tuple[int, str]:
    """Exit code, and everything that was said."""
    done = subprocess.run(
        [Path(sys.executable).with_name("fab"), *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("inventory", ["lab", "example"])
def test_a_scenario_on_an_inventory(inventory: str) -> None:
    code, said = fab("plan", "scenarios/on_off_udp.yml", "--inventory", f"inventory/{inventory}")
    assert code == 0, said
    assert "60 runs of 20 points" in said
    assert "##########----------" in said


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("scenarios/none.yml",), "scenarios/none.yml:1:1: cannot be read: No such file or directory"),
        (
            ("scenarios/random_loss.yml", "--profile", "short"),
            "random_loss.yml:36:1: profiles: the scenario has no profile short; it has iperf3",
        ),
        (
            ("scenarios/what_limits_a_flow.yml", "--profile", "short"),
            "what_limits_a_flow.yml:6:1: profiles: the scenario has no profile short",
        ),
        (("scenarios/on_off_udp.yml", "--point", "x"), "on_off_udp has no point x; it has "),
        (("scenarios/on_off_udp.yml", "--inventory", "nowhere"), "nowhere: there is no such inventory"),
    ],
)
def test_what_cannot_be_shown_is_said(arguments: tuple[str, ...], reason: str) -> None:
    code, said = fab("plan", *arguments)
    assert code != 0
    assert reason in said
    assert "Traceback" not in said


def test_a_plan_waits_for_no_table_or_plot_to_load() -> None:
    planned = "import sys; from dumbbell.cli.main import commands; commands.plan.body(None, 'one_flow')"
    loaded = "print(sorted({'polars', 'plotly', 'scipy', 'numpy', 'IPython'} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", f"{planned}; {loaded}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr


@pytest.mark.parametrize("task", ["status", "follow", "live", "stop"])
def test_what_is_no_run_is_said(task: str, tmp_path: Path) -> None:
    code, said = fab(task, "--run", str(tmp_path))
    assert code != 0
    assert f"{tmp_path} is no run directory" in said
    assert "Traceback" not in said


def test_figures_tables_and_exports(collected: Path, swept: Path, tmp_path: Path) -> None:
    code, said = fab("figure", str(collected), "list")
    assert code == 0, said
    assert "\ngoodput(width): Payload delivered over time" in said
    code, said = fab("figure", str(swept), "curve", "--asked", "metric=speed")
    assert code != 0
    assert said.startswith("curve: No valid one of 6 points has the metric speed; they have ")
    code, said = fab("figure", str(swept), "curve", "--asked", "colour=red")
    assert (code, said) == (1, "curve: it has no colour; it takes metric, x, by\n")
    code, said = fab("table", str(swept), "--csv", "--metrics", "goodput,rtt")
    assert code == 0, said
    assert said.splitlines()[0].startswith("level_beside,level_queue,baseline,flow,congestion_control,")
    code, said = fab("export", str(swept), "flent", "--out", str(tmp_path))
    assert code == 0, said
    made = [tmp_path / f"{swept.name}_{number:03}.flent.gz" for number in range(1, 7)]
    assert said.split() == [str(path) for path in made]
    assert sorted(tmp_path.iterdir()) == made


@pytest.mark.skipif(vector.browser() is None, reason="Chromium is not installed")
def test_a_figure_is_written(swept: Path, tmp_path: Path) -> None:
    asked = ("--asked", "metric=rtt", "--asked", "by=beside,flow")
    code, said = fab("figure", str(swept), "curve", *asked, "--svg", "--columns", "2", "--out", str(tmp_path))
    assert (code, said) == (0, f"{tmp_path}/curve.svg\n")
    drawn = (tmp_path / "curve.svg").read_text()
    assert 'width="687"' in drawn
    assert all(f">{name}<" in drawn for name in ("RTT (ms)", "reno, first", "2bdp"))


@pytest.mark.skipif(vector.browser() is None, reason="Chromium is not installed")
def test_several_sets_are_compared(collected: Path, tmp_path: Path) -> None:
    figure = tmp_path / "ratios.svg"
    sets = (f"one={collected}", str(collected), "--also", f"three={collected},{collected}")
    code, said = fab("compare", *sets, f"--figure={figure}")
    assert code == 0, said
    titles = " ".join(said.splitlines()[0].split())
    assert titles == "point metric of one second ratio 95 % interval three ratio 95 % interval"
    assert figure.read_bytes()[:4] == b"<svg"
    assert fab("compare", str(collected), f"the first={collected}") == (
        *(1, "the first is the name of several sets: give each a name of its own\n"),
    )


def test_all_files_are_read_together(tmp_path: Path) -> None:
    (empty := tmp_path / "empty.txt").write_bytes(b"")
    log = "tests/unit/fixtures/read/capture-ss.txt"
    code, said = fab("read", log, "--also", log, "--also", str(empty), "--results", str(tmp_path))
    assert code == 1
    assert said.startswith(f"{empty}, byte 0: the file is empty.")


BISECT = ("bisect", "scenarios/one_flow.yml", "--tree")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("ab", "scenarios/one_flow.yml"), "did not receive required positional arguments: 'a', 'b'"),
        (("ab", "scenarios/one_flow.yml", "one"), "did not receive required positional arguments: 'b'"),
        (("ab", "scenarios/one_flow.yml", "one", "two"), "the scenario has no profile one"),
        (("ab", "scenarios/one_flow.yml", "--kernel", "a"), "name at least two sides"),
        (
            ("ab", "scenarios/one_flow.yml", "a", "b", "--also", "c", "--also", "c"),
            "2 sides have the name c: c, c. Name each side once",
        ),
        (
            (
                "ab",
                "scenarios/one_flow.yml",
                "--kernel",
                "none.yml",
                "--kernel",
                "kernels/lab.yml",
                "--metric",
                "goodput",
            ),
            "none.yml is no file: name a recipe",
        ),
        (
            (
                "ab",
                "scenarios/one_flow.yml",
                "--kernel",
                "a",
                "--kernel",
                "b",
                "--inventory",
                "inventory/lab",
            ),
            "--kernel is of virtual time",
        ),
        ((*BISECT, "none", "--good", "a", "--bad", "b"), "none: there is no such directory"),
        ((*BISECT, "TREE", "--good", "a", "--bad", "b"), "has no revision 'a'"),
        ((*BISECT, "TREE", "--good", "v9.8", "--bad", "main"), "are the same commit"),
        ((*BISECT, "TREE", "--good", "v9.8", "--bad", "next", "--seeds", "1"), "seeds are at least 2"),
        (
            (*BISECT, "TREE", "--good", "v9.8", "--bad", "next", "--metric", "speed"),
            "there is no metric speed",
        ),
        ((*BISECT, "TREE", "--good", "v9.8", "--bad", "next", "--of", "flow2"), "flow2 has no goodput"),
    ],
)
def test_a_kernel_that_cannot_be_asked_for_is_said(
    arguments: tuple[str, ...], reason: str, kernel_tree: Path
) -> None:
    code, said = fab(*(str(kernel_tree) if word == "TREE" else word for word in arguments))
    assert code != 0
    assert reason in " ".join(said.split())
    assert "Traceback" not in said


@pytest.fixture(scope="module")
def kernel_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with the branch main, and next, which is one commit later."""
    tree = trees.make(tmp_path_factory.mktemp("kernel") / "linux")
    trees.git(tree, "checkout", "--quiet", "-b", "next")
    trees.commit(tree, "later")
    return tree
