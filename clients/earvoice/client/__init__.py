"""The typed, asynchronous client of EarVoice.

    async with connect("127.0.0.1:50051") as client:
        async for event in client.translate(audio, TranslationOptions(("de",))):
            match event:
                case Committed(words=words):
                    print(*(word.text for word in words))

Audio comes from anywhere that yields bytes; ``earvoice.client.audio_file`` reads recordings,
``earvoice.client.pcm_stream`` raw audio from a pipe, ``earvoice.client.pacing`` sends at real time.
"""

from earvoice.client.audio_format import AudioFormat
from earvoice.client.errors import (
    AccessDeniedError,
    Advice,
    AudioSourceError,
    InvalidRequestError,
    NotServedError,
    ProtocolError,
    RequestRefusedError,
    ServerBusyError,
    ServerFaultError,
    ServerUnavailableError,
    SessionEndedError,
    TranslationError,
)
from earvoice.client.event import (
    Committed,
    CommittedWord,
    EndOfUtterance,
    GoAway,
    SegmentDone,
    StageTimings,
    Started,
    Summary,
    Tentative,
    TranslationEvent,
)
from earvoice.client.model_description import ModelCatalog, ModelDescription
from earvoice.client.options import Endpointing, TranslationOptions
from earvoice.client.policy import (
    DecisionPolicy,
    Edatt,
    HoldN,
    LocalAgreement,
    WaitK,
    choose_policy,
)
from earvoice.client.translation_client import TranslationClient, connect

__all__ = [
    "AccessDeniedError",
    "Advice",
    "AudioFormat",
    "AudioSourceError",
    "Committed",
    "CommittedWord",
    "DecisionPolicy",
    "Edatt",
    "EndOfUtterance",
    "Endpointing",
    "GoAway",
    "HoldN",
    "InvalidRequestError",
    "LocalAgreement",
    "ModelCatalog",
    "ModelDescription",
    "NotServedError",
    "ProtocolError",
    "RequestRefusedError",
    "SegmentDone",
    "ServerBusyError",
    "ServerFaultError",
    "ServerUnavailableError",
    "SessionEndedError",
    "StageTimings",
    "Started",
    "Summary",
    "Tentative",
    "TranslationClient",
    "TranslationError",
    "TranslationEvent",
    "TranslationOptions",
    "WaitK",
    "choose_policy",
    "connect",
]
