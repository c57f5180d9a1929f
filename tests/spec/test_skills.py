"""Skills: what the model sees, what it may load, and what stays out of its reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nbagents import Agent, ScriptedChatClient, tool_call
from nbagents.spec import AgentRegistry, LocalSkills, SpecError, load_agents
from tests.spec.parts import faults_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "skills"
    write(root / "poetry", "---\nname: haiku\ndescription: Writes\n  haiku.\n---\n\nCount 5, 7, 5.\n")
    write(root / "plain", "# Do sums\nAdd them.\n")
    (root / "poetry" / "examples.md").write_text("Old pond")
    (root / "none").mkdir()
    (tmp_path / "secret.txt").write_text("top secret")
    return root


def write(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text)


def agent_with(folder: Path, *replies: Any) -> Agent:
    return AgentRegistry.create_from_dict(
        {"instructions": "Be kind.", "skills": {"paths": str(folder)}}, client=ScriptedChatClient([*replies, "Done."])
    )


def answers(folder: Path, **arguments: Any) -> str:
    """Return what the model is told for a call of load_skill."""
    agent = agent_with(folder, [tool_call("load_skill", **arguments)])
    agent.run_sync("Go")
    return str(agent.client.requests[-1].messages[-1].contents[0].result)  # type: ignore[union-attr]


def test_names_and_descriptions_are_shown_and_bodies_loaded_on_demand(folder: Path) -> None:
    agent = agent_with(folder, [tool_call("load_skill", name="haiku")])
    agent.run_sync("Write a haiku")
    first, last = agent.client.requests  # type: ignore[union-attr]
    system = first.messages[0].text
    assert system.startswith("Be kind.\nThere are skills")
    assert system.endswith("\n- plain: Do sums\n- haiku: Writes haiku.")
    assert "5, 7, 5" not in system
    assert [one.name for one in first.tools] == ["load_skill"]
    assert last.messages[-1].contents[0].result == "Count 5, 7, 5.\n"  # type: ignore[union-attr]


def test_a_file_of_a_skill_can_be_loaded(folder: Path) -> None:
    assert answers(folder, name="haiku", file="examples.md") == "Old pond"


@pytest.mark.parametrize(
    "file", ["../../secret.txt", "/etc/passwd", "..", ".", "link.txt", "a\0b", "nope.md", "loop", "long" * 100]
)
def test_no_path_leads_out_of_the_skill(folder: Path, file: str) -> None:
    (folder / "poetry" / "link.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "poetry" / "loop").symlink_to(folder / "poetry" / "loop")
    told = answers(folder, name="haiku", file=file)
    assert "has no file" in told
    assert "secret" not in told.replace(repr(file), "")


def test_what_the_model_gets_wrong_it_is_told(folder: Path) -> None:
    assert "There is no skill 'haiko'. Did you mean 'haiku'?" in answers(folder, name="haiko")
    (folder / "poetry" / "image.png").write_bytes(b"\x89PNG\xff")
    assert "image.png is no text" in answers(folder, name="haiku", file="image.png")
    (folder / "poetry" / "long.md").write_text("x" * 200_001)
    assert "larger than 200,000 bytes" in answers(folder, name="haiku", file="long.md")


def test_folders_and_files_that_lead_elsewhere_are_left_out(folder: Path) -> None:
    write(folder.parent / "outside", "Outside.")
    (folder / "linked").symlink_to(folder.parent / "outside")
    with pytest.warns(UserWarning, match="'linked' is left out"):
        assert list(LocalSkills(folder).skills) == ["plain", "haiku"]
    (folder / "linked").unlink()
    (folder / "none" / "SKILL.md").symlink_to(folder.parent / "secret.txt")
    with pytest.raises(SpecError, match="leads out of its folder"):
        LocalSkills(folder)


def test_a_link_to_a_folder_of_skills_is_that_folder(folder: Path) -> None:
    (folder.parent / "link").symlink_to(folder)
    assert list(LocalSkills([folder.parent / "link"]).skills) == ["plain", "haiku"]
    assert list(LocalSkills(folder / "poetry").skills) == ["haiku"]


def test_folders_that_hold_nothing_are_faults(folder: Path) -> None:
    payload = {"skills": {"paths": [str(folder / "none"), "nowhere"]}}
    told = [(place, text) for place, _, text in faults_of(payload, client=ScriptedChatClient([]))]
    assert [place for place, _ in told] == ["skills.paths[0]", "skills.paths[1]"]
    assert "has a SKILL.md" in told[0][1]
    assert "there is no folder" in told[1][1]


def test_broken_front_matter_and_equal_names_are_faults(folder: Path) -> None:
    write(folder / "x1", "---\nname: haiku\n---\n")
    with pytest.raises(SpecError, match="two skills are called 'haiku': poetry and x1"):
        LocalSkills(folder)
    for head in ("name: !!python/name:os.system", "name: [", "just text", "name: a\nname: b"):
        (folder / "x1" / "SKILL.md").write_text(f"---\n{head}\n---\n")
        with pytest.raises(SpecError, match="x1"):
            LocalSkills(folder)


def test_long_and_folded_texts_become_one_short_line(folder: Path) -> None:
    write(folder / "x1", f"---\nname: {'n' * 100}\ndescription: |\n  one\n  {'d' * 2000}\n---\n")
    skill = next(one for one in LocalSkills(folder).skills.values() if one.folder.name == "x1")
    assert (len(skill.name), len(skill.description)) == (64, 1_024)
    assert skill.description.startswith("one ddd")


def test_the_folder_beside_the_file_is_the_default(folder: Path) -> None:
    path = folder.parent / "agent.yaml"
    path.write_text("skills: local")
    agent = AgentRegistry.create_from_file(path, client=ScriptedChatClient([]))
    (skills,) = agent.context_providers
    assert isinstance(skills, LocalSkills)
    assert list(skills.skills) == ["plain", "haiku"]
    elsewhere = folder / "none" / "agent.yaml"
    elsewhere.write_text("agents: [{name: a}]\nskills: local")
    assert load_agents(elsewhere, client=ScriptedChatClient([])).agents[0].context_providers == []


def test_skills_can_be_given_in_code(folder: Path) -> None:
    client = ScriptedChatClient(["Hi"])
    Agent(client, context_providers=LocalSkills(folder)).run_sync("Hi")
    assert "haiku" in client.requests[0].messages[0].text
