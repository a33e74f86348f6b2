"""Models of other families through the three services: every policy they bear, and no other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

import grpc
import numpy as np
import pytest

from earvoice.api.v1 import decision_policy_pb2 as policy_pb
from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.client.options import Endpointing, TranslationOptions, write_config
from earvoice.client.preset import find_preset
from earvoice.runtime.audio_format import AudioFormat
from tests.e2e.calling import RATE_HERTZ, call, requests, speech
from tests.e2e.running import Running, start
from tests.tiny_model import TARGET_TEXT, train_sentencepiece

pytest.importorskip("transformers", reason="the extra 'hf' is not installed: other families")
pytestmark = pytest.mark.torch

SECONDS = 4
POLICIES = {
    "edatt": policy_pb.DecisionPolicy(edatt={}),
    "align_att": policy_pb.DecisionPolicy(align_att={}),
    "local_agreement": policy_pb.DecisionPolicy(local_agreement={}),
    "wait_k": policy_pb.DecisionPolicy(wait_k={}),
}
REFUSED = {
    "policy.wait_k.detection": {
        "policy": policy_pb.DecisionPolicy(wait_k={"detection": policy_pb.WORD_DETECTION_ADAPTIVE})
    },
    "policy.strided_wait_k.stride_words": {
        "policy": policy_pb.DecisionPolicy(strided_wait_k={"stride_words": 2})
    },
    "enable_source_transcript": {"enable_source_transcript": True},
}


@dataclass(frozen=True)
class Served:
    path: Path
    running: Running


@pytest.fixture(scope="module", params=["speech_to_text", "whisper"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A tiny checkpoint of a family, served by three processes."""
    yield from _served(request.param, tmp_path_factory.mktemp("services"))


def _served(family: str, folder: Path) -> Iterator[Served]:
    from tests.models import tiny_families

    if family == "whisper":
        path = tiny_families.whisper(folder / "model")
    else:
        pieces = train_sentencepiece(TARGET_TEXT)
        path = getattr(tiny_families, family)(folder / "model", pieces)
    settings = {"MODEL_PATH": str(path), "SOURCE_LANGUAGE": "de", "TARGET_LANGUAGE": "en"}
    environment = {
        f"EARVOICE_{service}_{name}": value
        for service in ("ENCODER", "DECODER")
        for name, value in settings.items()
    }
    running = start(folder, **environment, EARVOICE_ENCODER_MAX_UTTERANCE_MS="30000")
    try:
        yield Served(path, running)
    finally:
        running.stop()


def _sound() -> bytes:
    return speech()[: SECONDS * RATE_HERTZ * 2]


@pytest.mark.parametrize("name", POLICIES)
async def test_policies_translate(served: Served, name: str):
    """A whole stream without an error; what is said is nonsense, what is told is consistent."""
    outcome = await call(
        served.running.address,
        requests(
            _sound(), target_language_codes=["en"], policy=POLICIES[name], disable_guards=True
        ),
    )
    assert outcome.code is grpc.StatusCode.OK, outcome.details
    done = outcome.of("segment_done")
    assert len(done) >= SECONDS
    assert outcome.items
    assert all(item.delay_samples <= SECONDS * RATE_HERTZ for item in outcome.items)


async def test_guards_do_without_labels(served: Served):
    """Speech alone is evidence enough, and its duration bounds how many words it may give."""
    outcome = await call(
        served.running.address,
        requests(_sound(), target_language_codes=["en"], policy=POLICIES["local_agreement"]),
    )
    assert outcome.code is grpc.StatusCode.OK, outcome.details
    assert "evidence" not in outcome.of("summary")[0].guards_hit
    words = sum(item.starts_word for item in outcome.items)
    assert words <= 2 * math.ceil(SECONDS * 1000 / 280) + 3


@pytest.mark.parametrize("field", REFUSED)
async def test_what_needs_a_ctc_head_is_refused(served: Served, field: str):
    """By name, before any audio is computed."""
    outcome = await call(
        served.running.address, requests(_sound(), target_language_codes=["en"], **REFUSED[field])
    )
    assert outcome.code is grpc.StatusCode.INVALID_ARGUMENT
    assert field in outcome.details
    assert "model" in outcome.details


@pytest.fixture(scope="module")
def polak(tmp_path_factory: pytest.TempPathFactory):
    """Polák 2022's model B in small, random weights: wav2vec 2.0 with an mBART-50 decoder."""
    yield from _served("wav2vec_mbart", tmp_path_factory.mktemp("polak"))


@pytest.mark.parametrize(
    "name",
    [
        "polak-2022-la-2-1000",
        "polak-2022-la-3-500",
        "polak-2022-hold-6-1000",
        "polak-2022-sp-1-1000",
        "polak-2022-la-2-500-wait",
        "polak-2022-submission-en-de-low",
    ],
)
async def test_polak_presets_commit_what_the_paper_says(polak: Served, name: str):
    """Every segment of every preset commits what equations 1 to 3 say of its hypotheses."""
    preset = find_preset(name)
    options = preset.apply(
        TranslationOptions(
            target_languages=("de",),
            catch_up="every-segment",
            commit_unit="token",
            endpointing=Endpointing(disabled=True),
            disable_guards=True,
            hypotheses=True,
        )
    )
    wire = write_config(replace(options, commit_unit="token", audio=AudioFormat()))
    sent = requests(_sound())
    sent[0].config.CopyFrom(wire)
    outcome = await call(polak.running.address, sent)
    assert outcome.code is grpc.StatusCode.OK, outcome.details
    done = outcome.of("segment_done")
    first_ms = (preset.segment_ms or 0) + (preset.initial_wait_ms or 0)
    assert done[0].end_sample == first_ms * RATE_HERTZ // 1000
    # All but the last, in which everything is committed.
    texts = [list(one.hypothesis_tokens) for one in done[:-1]]
    committed, expected = [one.committed_token_count for one in done[:-1]], []
    reading = preset.policy.to_dict()["n"]
    prefix = 0
    for index, text in enumerate(texts):
        assert done[index].prefix_token_count == prefix
        if preset.policy.name == "hold_n":
            stable = max(prefix, len(text) - reading)
        elif index + 1 < reading:
            stable = 0
        else:
            alike = zip(*texts[index + 1 - reading : index + 1], strict=False)
            stable = len(list(takewhile(lambda tokens: len(set(tokens)) == 1, alike)))
        expected.append(max(0, stable - prefix))
        prefix += committed[index]
    if preset.policy.name == "shared_prefix":
        # Of the beam only its best item is told: what all share is at most that.
        assert all(found <= most for found, most in zip(committed, expected, strict=True))
    else:
        assert committed == expected
    assert prefix <= len(done[-1].hypothesis_tokens)
    assert outcome.items


async def test_offline_equals_transformers(served: Served):
    """The offline policy's tokens are those that `transformers` generates from the same sound."""
    outcome = await call(
        served.running.address,
        requests(
            _sound(),
            target_language_codes=["en"],
            policy=policy_pb.DecisionPolicy(offline={}),
            endpointing=pb.Endpointing(disabled=True),
            disable_guards=True,
            enable_hypotheses=True,
        ),
    )
    assert outcome.code is grpc.StatusCode.OK, outcome.details
    tokens = list(outcome.of("segment_done")[-1].hypothesis_tokens)
    assert len(tokens) > 5
    assert tokens == _generated(served.path, len(tokens))


def _generated(path: Path, count: int) -> list[int]:
    import torch
    from transformers import GenerationMixin
    from transformers.modeling_outputs import BaseModelOutput

    from earvoice.models.wrapped.directory import read_config
    from earvoice.models.wrapped.families import WRAPPED_FAMILIES
    from earvoice.models.wrapped.loading import load_wrapped

    model = load_wrapped(
        path,
        dtype=torch.float32,
        device=torch.device("cpu"),
        source_language="de",
        target_language="en",
    )
    sound = np.frombuffer(_sound(), "<i2").astype(np.float32) / 32768
    network = WRAPPED_FAMILIES[read_config(path)["model_type"]].network.from_pretrained(path).eval()
    order = model.order
    start = network.generation_config.decoder_start_token_id
    prompt = [start, *(order[token] for token in model.language_tokens["en"])]
    # Whisper's own generate goes on by 30 s of sound; this is the search that it calls.
    generated = GenerationMixin.generate(
        network,
        encoder_outputs=BaseModelOutput(last_hidden_state=model.encoder.states(sound)[None]),
        decoder_input_ids=torch.tensor([prompt]),
        max_new_tokens=count,
        do_sample=False,
        num_beams=1,
        suppress_tokens=[*(network.generation_config.suppress_tokens or ()), *order[:2]],
    )[0].tolist()
    own = generated[len(prompt) :] if generated[: len(prompt)] == prompt else generated
    return [order.index(token) for token in own if token != order[2]]
