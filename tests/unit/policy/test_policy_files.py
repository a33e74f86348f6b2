"""Policies of other people's: files and installed packages, on the wire by their names."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from earvoice.api.v1 import decision_policy_pb2 as pb
from earvoice.policies.message import read_any_policy, write_policy
from earvoice.policies.registry import (
    POLICIES,
    NamedPolicy,
    PolicyLoadError,
    format_policy,
    installed_policies,
    load_file,
    parse_policy,
    resolved_file,
    with_files,
)
from earvoice.policy.event import SessionSnapshot
from earvoice.policy.resume import ResumeTokens, TokenOwner
from earvoice.policy.wire.config import effective_config, resolved_policy, stream_options
from earvoice.runtime.errors import InvalidFieldError, InvalidResumeTokenError
from earvoice.runtime.parameter import ParameterError
from tests.own_policy import shown_policy
from tests.unit.policy.running import with_options
from tests.unit.policy.test_config import MODEL, config, milliseconds

HEAD = """
from dataclasses import dataclass
from earvoice.policies import Decision, DecisionPolicy, parameter
"""


@pytest.fixture
def share(tmp_path: Path) -> str:
    """CONTRIBUTING's example as somebody's own file."""
    path = tmp_path / "share.py"
    path.write_text(shown_policy(), encoding="utf8")
    return f"{path}:Share"


def test_a_file_s_policy_is_chosen_with_its_parameters(share: str):
    """The same text as for a name; a file that is named twice is loaded once."""
    policy = parse_policy(f"{share}:share=0.25")
    assert policy == load_file(share)(share=0.25)
    assert format_policy(policy) == "share:share=0.25"
    assert resolved_file(f"{share}:share=0.1/0.2@segment=800") == share


def test_a_named_policy_crosses_the_wire(share: str):
    """Name and typed parameters; what a client has no class for it is still told of."""
    policies = with_files(POLICIES, [share])
    policy = parse_policy(f"{share}:share=0.25")
    message = write_policy(policy)
    assert message.named.parameters["share"].number == 0.25
    assert resolved_policy(message, MODEL, policies) == policy
    told = read_any_policy(message, POLICIES)
    assert told == NamedPolicy("share", {"share": 0.25})
    assert write_policy(told) == message


def test_our_own_may_be_asked_for_by_name():
    """Lists, flags and choices are typed, and a whole number passes for a fraction."""
    asked = NamedPolicy("edatt", {"alpha": 1, "attention_heads": (1, 3), "normalization": "l1"})
    policy = resolved_policy(write_policy(asked), MODEL, POLICIES)
    assert (policy.alpha, policy.attention_heads, policy.normalization) == (1.0, (1, 3), "l1")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (NamedPolicy("share"), r"policy\.named\.name = 'share' .*allowed: edatt, .*offline"),
        (NamedPolicy("/tmp/x.py:X"), r"policy\.named\.name = '/tmp/x.py:X' .*allowed: edatt"),
        (NamedPolicy("hold_n", {"k": 3}), r"policy\.hold_n\.k is not a parameter.*allowed: n"),
        (NamedPolicy("hold_n", {"n": 99}), r"policy\.hold_n\.n = 99 .*allowed: .* 0 to 64"),
        (NamedPolicy("hold_n", {"n": "3"}), r"policy\.hold_n\.n = '3' .*allowed: a whole number"),
        (
            NamedPolicy("frame_schedule"),
            r"policy\.frame_schedule\.wait_frames is missing.* 1 to 2000",
        ),
    ],
)
def test_what_a_server_does_not_have_is_refused(asked: NamedPolicy, message: str):
    """No file is ever looked for: a name is looked up."""
    with pytest.raises(InvalidFieldError, match=message):
        resolved_policy(write_policy(asked), MODEL, POLICIES)


def test_a_parameter_without_a_value_is_refused():
    """It is no number, and no default either."""
    message = pb.DecisionPolicy()
    message.named.name = "hold_n"
    message.named.parameters["n"].SetInParent()
    with pytest.raises(InvalidFieldError, match=r"policy\.hold_n\.n = None"):
        resolved_policy(message, MODEL, POLICIES)


def test_a_policy_without_a_scale_holds_no_lag(share: str):
    """It is refused by name, and so are ours that have none."""
    policies = with_files(POLICIES, [share])
    asked = config(policy=write_policy(NamedPolicy("share")), target_lag=milliseconds(2000))
    with pytest.raises(InvalidFieldError, match=r"target_lag = .*unset with policy\.share, which"):
        stream_options(asked, MODEL, policies)


def test_a_session_with_a_file_s_policy_can_be_resumed(share: str):
    """Where it is served; its memory is its own snapshot, by default none."""
    policies = with_files(POLICIES, [share])
    options = with_options(policy=policies["share"](share=0.25), attention_layer=4)
    assert stream_options(effective_config(options, MODEL), MODEL, policies) == options
    keys, clock = (b"k" * 32,), (lambda: 1000.0, lambda: 0.0)
    owner = TokenOwner("", MODEL, "session", "")
    there = ResumeTokens(keys, 60.0, *clock, policies)
    token = there.make(SessionSnapshot(options), 1, owner)
    assert there.take(token, "", lambda _: MODEL)[0].options == options
    with pytest.raises(InvalidResumeTokenError, match=r"here: policy\.named\.name = 'share'"):
        ResumeTokens(keys, 60.0, *clock).take(token, "", lambda _: MODEL)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("1 +", "SyntaxError"),
        ("import nothing_like_it", "ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("Other = 1", "mine.py has no Mine; it has none"),
        ("Mine = 3", "is not a subclass of earvoice.policies.DecisionPolicy"),
        ("class Mine(DecisionPolicy):\n    name = 'mine'", "Mine does not define decide"),
        ("class Mine(DecisionPolicy):\n    decide = None", r"Mine\.name = '' is not allowed"),
        (
            "class Mine(DecisionPolicy):\n    name, decide = 'mine', 3\n    n: int = parameter(3)",
            r"Mine is not a @dataclass\(frozen=True\)",
        ),
        (
            "@dataclass(frozen=True)\nclass Mine(DecisionPolicy):\n  name = decide = 'm'; n: No",
            "name 'No' is not defined",
        ),
        ("class Mine(DecisionPolicy):\n    name, decide = 'edatt', None", "name = 'edatt'.*Edatt"),
    ],
)
def test_a_file_that_cannot_be_used_is_told(tmp_path: Path, code: str, message: str):
    """The message says which file, and what is wrong with it."""
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}\n{code}\n", encoding="utf8")
    with pytest.raises(PolicyLoadError, match=message) as refused:
        with_files(POLICIES, [f"{path}:Mine"])
    assert f"{path}:Mine" in str(refused.value)


@pytest.mark.parametrize("text", ["nowhere.py:Mine", "nowhere.py", "nowhere.py:", "a.py:b-c"])
def test_a_file_that_is_not_there_is_told(text: str):
    """Or a text that is no file and class."""
    with pytest.raises(PolicyLoadError, match=r"policy = 'a?n?"):
        load_file(text)


def test_a_parameter_out_of_range_is_told(share: str):
    """As it was typed, with what is allowed."""
    with pytest.raises(ParameterError, match=r"Share:share = 2\.0 .* a number from 0\.0 to 1\.0"):
        parse_policy(f"{share}:share=2")


def test_installed_packages_bring_policies(share: str, tmp_path: Path, monkeypatch):
    """By the entry points `earvoice.policies`."""
    package = tmp_path / "site"
    (package / "shares-1.0.dist-info").mkdir(parents=True)
    (package / "shares-1.0.dist-info" / "METADATA").write_text("Name: shares\nVersion: 1.0\n")
    (package / "shares-1.0.dist-info" / "entry_points.txt").write_text(
        "[earvoice.policies]\nshare = shares_of_a_package:Share\n"
    )
    (package / "shares_of_a_package.py").write_text(shown_policy(), encoding="utf8")
    monkeypatch.syspath_prepend(package)
    importlib.invalidate_caches()
    assert installed_policies()["share"].__module__ == "shares_of_a_package"
    assert parse_policy("share:share=0.25").share == 0.25
