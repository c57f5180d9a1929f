"""Skills: folders with a `SKILL.md`. The model sees what there is and loads what it needs; nothing in them is run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbagents.core.errors import ConfigurationError, ToolError
from nbagents.core.providers import ContextProvider
from nbagents.core.run import RunContext
from nbagents.core.tools import FunctionTool
from nbagents.spec.documents import read_text
from nbagents.spec.faults import SpecError, SpecFault, nearest

SKILL_FILE = "SKILL.md"
MAX_SKILLS = 200
MAX_FILE_BYTES = 200_000
"""The largest file that the model is given."""
MAX_NAME = 64
MAX_DESCRIPTION = 1_024

_INTRODUCTION = (
    "There are skills: instructions for particular tasks. Before you begin such a task, load its skill with load_skill."
)


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill.

    Attributes:
        name: what the model calls it.
        description: what it is for.
        folder: where its files are.
    """

    name: str
    description: str
    folder: Path


class LocalSkills(ContextProvider):
    """Shows an agent the skills of some folders.

    Names and descriptions stand in the instructions; the tool `load_skill` gives the text of one, or another text file
    of its folder. No path leads out of the folder of the skill, also not by a link.

    Args:
        paths: folders, each a skill itself or a folder of skills.

    Raises:
        SpecError: a folder that is not there, a `SKILL.md` that cannot be read, two skills of one name.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp(), "poetry")
        >>> folder.mkdir()
        >>> _ = (folder / "SKILL.md").write_text("---\\ndescription: Writes haiku.\\n---\\n5, 7 and 5 syllables.")
        >>> LocalSkills([folder]).skills["poetry"].description
        'Writes haiku.'
    """

    def __init__(self, paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str]) -> None:
        given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        self.paths = [Path(path).expanduser() for path in given]
        self.skills: dict[str, Skill] = {}
        self._tool = FunctionTool(self.load_skill)
        faults: list[SpecFault] = []
        for place, path in enumerate(self.paths):
            try:
                self._add(path)
            except ConfigurationError as error:
                faults.append(SpecFault(("paths", place), error.message, error.hint))
        if faults:
            raise SpecError(faults)

    def __repr__(self) -> str:
        return f"LocalSkills([{', '.join(self.skills)}])"

    async def before_run(self, context: RunContext) -> None:
        """Say which skills there are, and offer the tool that loads one."""
        if self.skills:
            listed = [f"- {skill.name}: {skill.description}" for skill in self.skills.values()]
            self.add(context, instructions="\n".join([_INTRODUCTION, *listed]), tools=[self._tool])

    def load_skill(self, name: str, file: str | None = None) -> str:
        """Load a skill, or another file of its folder.

        Args:
            name: the name of the skill.
            file: the path of a file that the skill refers to; the skill's own text by default.
        """
        skill = self.skills.get(name)
        if skill is None:
            raise ToolError(f"There is no skill {name!r}. {nearest(name, self.skills)}")
        place = _inside(skill.folder, file or SKILL_FILE)
        if place is None or not place.is_file():
            raise ToolError(f"The skill {name!r} has no file {file!r}.")
        text = _read(place)
        return text if file else _split(text)[1]

    def _add(self, path: Path) -> None:
        root = path.resolve()
        if not root.is_dir():
            raise ConfigurationError(f"there is no folder {str(path)!r}.")
        found = list(_skills_in(root))
        if not found:
            raise ConfigurationError(f"no folder in {str(path)!r} has a {SKILL_FILE}.")
        for skill in found:
            other = self.skills.get(skill.name)
            if other is not None and other.folder != skill.folder:
                raise ConfigurationError(
                    f"two skills are called {skill.name!r}: {other.folder.name} and {skill.folder.name}.",
                    hint=f"Give one another name in its {SKILL_FILE}.",
                )
            self.skills[skill.name] = skill
        if len(self.skills) > MAX_SKILLS:
            raise ConfigurationError(f"these are more than {MAX_SKILLS} skills.", hint="Name fewer folders.")


def _skills_in(root: Path) -> Iterator[Skill]:
    """Yield the skill that a folder is, or those in it."""
    if (root / SKILL_FILE).exists():
        yield _skill(root, root)
        return
    for folder in sorted(root.iterdir()):
        if (folder / SKILL_FILE).is_file():
            if _inside(root, folder.name) is None:
                warnings.warn(
                    f"The skill {folder.name!r} is left out: its folder is a link that leads out of {root}.",
                    UserWarning,
                    stacklevel=2,
                )
                continue
            yield _skill(folder.resolve(), root)


def _skill(folder: Path, root: Path) -> Skill:
    place = _inside(folder, SKILL_FILE)
    if place is None:
        raise ConfigurationError(f"{SKILL_FILE} of {folder.name!r} is a link that leads out of its folder.")
    try:
        head, body = _split(_read(place))
        fields = _fields(head) if head.strip() else {}
    except (ToolError, SpecError) as error:
        raise ConfigurationError(f"{folder.name}: {error.message}") from error
    first_line = next((line.strip("# ") for line in body.splitlines() if line.strip("# ")), "")
    name = _one_line(fields.get("name") or folder.name, MAX_NAME)
    return Skill(name, _one_line(fields.get("description") or first_line, MAX_DESCRIPTION), folder)


def _fields(head: str) -> dict[str, Any]:
    document = read_text(head, "yaml", name=SKILL_FILE)
    if document.faults or not isinstance(document.root, dict):
        raise document.error(*([] if document.faults else [SpecFault((), "it begins with no fields.")]))
    return document.root


def _inside(folder: Path, file: str) -> Path | None:
    """Return the real place of a file of `folder`; None if there is none, or it is somewhere else."""
    try:
        place = (folder / file).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):  # nothing there, no path at all, or links in a circle
        return None
    return place if place.is_relative_to(folder) else None


def _read(place: Path) -> str:
    try:
        with place.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ToolError(f"{place.name} is larger than {MAX_FILE_BYTES:,} bytes.")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ToolError(f"{place.name} is no text.") from error
    except OSError as error:
        raise ToolError(f"{place.name} cannot be read: {error.strerror}.") from error


def _split(text: str) -> tuple[str, str]:
    """Return what stands between the lines `---` at the begin, and the rest."""
    lines = text.splitlines(keepends=True)
    if lines and lines[0].strip() == "---":
        for number, line in enumerate(lines[1:], 1):
            if line.strip() == "---":
                return "".join(lines[1:number]), "".join(lines[number + 1 :]).lstrip("\n")
    return "", text


def _one_line(text: object, most: int) -> str:
    joined = " ".join(str(text).split())
    return joined if len(joined) <= most else f"{joined[: most - 1]}…"
