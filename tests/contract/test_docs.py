"""What the pages say is what the code does, as far as a test can see."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from earvoice.api.v1 import (
    decoder_service_pb2,
    encoder_service_pb2,
    error_reason_pb2,
    speech_translation_service_pb2,
)
from earvoice.client.preset import PAPERS
from earvoice.policies import POLICIES
from earvoice.runtime.parameter import parameters_of
from tools import document_telemetry
from tools.document_configuration import PAGE, configuration_page
from tools.document_policies import policies_page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "demo/*.md", "models/*/*.md", "benchmarks/*.md")
    for page in ROOT.glob(pattern)
)
PROTOS = ROOT / "protos" / "earvoice" / "api" / "v1"

SERVICES = (speech_translation_service_pb2, encoder_service_pb2, decoder_service_pb2)
RPCS = [
    rpc.name
    for module in SERVICES
    for service in module.DESCRIPTOR.services_by_name.values()
    for rpc in service.methods
]
EVENTS = speech_translation_service_pb2.StreamingTranslateResponse.DESCRIPTOR.oneofs_by_name
STAGES = speech_translation_service_pb2.StageTimings.DESCRIPTOR.fields_by_name


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf8")


def without_code(text: str) -> str:
    return re.sub(
        r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    )


def anchors_of(page: Path) -> set[str]:
    """The headings as they are linked to: lower case, blanks as hyphens, no other signs."""
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf8"), flags=re.DOTALL | re.MULTILINE
    )
    titles = re.findall(r"^#+ +(.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def section_of(text: str, title: str) -> str:
    """From a heading that holds the title to the next heading of any level."""
    found = re.search(
        rf"^#+ [^\n]*{re.escape(title)}[^\n]*\n(.*?)(?=^#|\Z)", text, re.DOTALL | re.MULTILINE
    )
    assert found, f"no heading has {title}"
    return found[1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page: Path):
    """Every link inside the repository leads to a file, and to a heading if it names one."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        inside = target.is_relative_to(ROOT) and target.exists()
        if not inside or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_exist(page: Path):
    """A path in code type that begins with one of our folders is there."""
    folders = "services|clients|lab|protos|tools|tests|benchmarks|docs|models|demo"
    named = re.findall(rf"`((?:{folders})/[\w./\-]*)`", page.read_text(encoding="utf8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_configuration_is_current():
    """docs/configuration.md is what tools/document_configuration.py writes."""
    assert PAGE.read_text(encoding="utf8") == configuration_page()


def test_the_telemetry_page_is_current():
    """docs/telemetry.md is what tools/document_telemetry.py writes."""
    page = document_telemetry.PAGE.read_text(encoding="utf8")
    assert page == document_telemetry.telemetry_page()


@pytest.mark.parametrize("rpc", sorted(set(RPCS)))
def test_every_rpc_has_a_sequence_diagram(rpc: str):
    """A reader finds each method with its order of messages."""
    assert "sequenceDiagram" in section_of(text_of("protocol.md"), rpc)


@pytest.mark.parametrize("event", [field.message_type.name for field in EVENTS["message"].fields])
def test_every_public_answer_is_described(event: str):
    """protocol.md says when each message of the public stream comes."""
    assert f"`{event}`" in text_of("protocol.md")


@pytest.mark.parametrize("proto", sorted(PROTOS.glob("*.proto")), ids=lambda path: path.stem)
def test_what_is_unimplemented_is_said(proto: Path):
    """A field whose comment says UNIMPLEMENTED stands in protocol.md's list."""
    reserved = section_of(text_of("protocol.md"), "Reserved")
    pattern = r"UNIMPLEMENTED[^\n]*\n(?:\s*//[^\n]*\n)*\s*(?:repeated |optional )?[\w.]+ (\w+) = "
    fields = re.findall(pattern, proto.read_text(encoding="utf8"))
    assert [field for field in fields if f"`{field}`" not in reserved] == []


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_is_described(policy: str):
    """policies.md has each policy with all its parameters, by their names."""
    section = section_of(text_of("policies.md"), f"`{policy}`")
    assert [name for name in parameters_of(POLICIES[policy]) if f"`{name}`" not in section] == []


def test_the_policies_tables_are_current():
    """Their ranges and defaults are those that the policies declare."""
    page = text_of("policies.md")
    assert page == policies_page(page)


@pytest.mark.parametrize("paper", PAPERS)
def test_the_presets_of_every_paper_are_described(paper: str):
    """policies.md has the names of each paper's presets."""
    assert f"`{paper}-" in section_of(text_of("policies.md"), "Presets")


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_every_stage_is_described(stage: str):
    """latency.md has each part of a word's time."""
    assert f"`{stage}`" in text_of("latency.md")


def test_every_reason_is_in_the_table_of_errors():
    """errors.md says what to do about each reason."""
    names = [
        name.removeprefix("ERROR_REASON_")
        for name in error_reason_pb2.ErrorReason.DESCRIPTOR.values_by_name
    ]
    table = text_of("errors.md")
    assert [name for name in names if name != "UNSPECIFIED" and f"| {name} |" not in table] == []
