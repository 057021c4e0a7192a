"""What is evaluated: a congestion control of a kernel, or that of a module's source; and its scenarios."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML

from dumbbell.evaluation import EvaluationError
from dumbbell.execution.made_of import digest_of, files_below
from dumbbell.kernels import build, short
from dumbbell.places import COLLECTION, HOME, PACKAGE, REPOSITORY
from dumbbell.quantities import Name
from dumbbell.scenario import Problem, ScenarioError

_STEPS = ("execution", "virtual")  # packages whose code a run depends on, beside its plan
_NAME: TypeAdapter[str] = TypeAdapter(Name)


@dataclass(frozen=True)
class Subject:
    """A congestion control, the directory of its module if it is not the kernel's, and another kernel."""

    control: str
    module: Path | None = None
    kernel: str | None = None

    @property
    def name(self) -> str:
        """How tables and figures call it."""
        return self.control if self.kernel is None else f"{self.control} on {short(self.kernel)}"

    @property
    def file_name(self) -> str:
        """The same as a part of a directory's name."""
        return self.name.replace(" on ", "-")

    @classmethod
    def of(cls, text: str, kernel: str | None = None) -> Subject:
        """What a user names: a control, or ``DIRECTORY[:CONTROL]`` of a module; EvaluationError otherwise."""
        place, _, control = text.partition(":")
        if place.endswith(".o"):
            raise EvaluationError(
                f"{text}: programs of BPF cannot be evaluated, since kernels of virtual time have no BTF, "
                "which struct_ops need. Build the control as a module, and name its directory"
            )
        folder = Path(place)
        if "/" not in place and not folder.is_dir():
            if control:
                raise EvaluationError(f"{text}: {place} is no directory of a module")
            return cls(_named(text, text), None, kernel)
        makefile = folder / "Makefile"
        name = folder.resolve().name
        objects = makefile.read_text(errors="replace") if makefile.is_file() else ""
        if not re.search(rf"^obj-m\s*[:+]?=.*\b{re.escape(name)}\.o\b", objects, re.MULTILINE):
            raise EvaluationError(
                f"{place} is no directory of a module: it needs a Makefile with `obj-m := {name}.o`"
            )
        return cls(_named(control or name.removeprefix("tcp_"), text), folder.resolve(), kernel)

    def digest(self, inventory: Path) -> str:
        """Identifies all that its results depend on, beside plans: module, kernel, hosts, steps of a run.

        Builds the kernel, if it is another one; KernelError or DoesNotBuild.
        """
        steps = [PACKAGE / name for name in _STEPS]
        values = [
            None if self.kernel is None else build(self.kernel).result.name,
            None if self.module is None else digest_of(files_below(self.module), self.module),
            digest_of((file for folder in steps for file in files_below(folder)), PACKAGE),
        ]
        script = COLLECTION / "roles" / "lab" / "files" / "digest.sh"
        recipe = REPOSITORY / "kernels" / "linux-7.2.yml"
        agent = HOME / ".build" / "bin" / "dumbbell-agent"
        made_of = map(str, (script, REPOSITORY, inventory.resolve(), recipe, agent, json.dumps(values)))
        done = subprocess.run(["sh", *made_of], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def write_scenario(self, source: Path, target: Path) -> None:
        """Write a scenario of the evaluation with this control in it; ScenarioError if it takes none."""
        yaml = YAML()
        yaml.width = 200
        scenario = yaml.load(source)
        if "control" not in (scenario.get("matrix") or {}):
            reason = "has no value `control`, in whose place the evaluated congestion control is put"
            raise ScenarioError([Problem(str(source), 1, 1, "matrix", reason)])
        scenario["matrix"]["control"] = self.control
        if self.module is not None:
            testbed = scenario.setdefault("hosts", {}).setdefault("testbed", {})
            testbed.setdefault("modules", {})[self.module.name] = {}
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("w", encoding="utf-8") as file:
            yaml.dump(scenario, file)


def _named(control: str, text: str) -> str:
    try:
        return _NAME.validate_python(control)
    except ValidationError:
        raise EvaluationError(
            f"{text}: {control!r} is no name of a congestion control, such as bbr; a module's directory has "
            "a slash in it, and may be followed by :CONTROL"
        ) from None
