"""The typed, asynchronous client of EarVoice.

    async with connect("127.0.0.1:50051") as client:
        async for event in client.translate(audio, TranslationOptions(("de",))):
            match event:
                case Committed(words=words):
                    print(*(word.text for word in words))

A session outlives its server: it continues at the next address, or at the same one once it is back,
and ``Reconnected`` reports it.

Audio comes from anything that yields bytes: ``earvoice.client.audio_file`` reads recordings;
``earvoice.client.audio`` reads raw audio from a pipe, and paces audio in real time.
"""

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
    NotUnderstood,
    Reconnected,
    SegmentDone,
    StageTimings,
    Started,
    Summary,
    Tentative,
    TranslationEvent,
    join_words,
)
from earvoice.client.model_description import ModelCatalog, ModelDescription
from earvoice.client.options import (
    Endpointing,
    HistorySelection,
    TranslationOptions,
    TranslationUpdate,
)
from earvoice.client.preset import PRESETS, Preset, find_preset
from earvoice.client.translation_client import TranslationClient, connect
from earvoice.client.translation_stream import ResumePoint, TranslationStream
from earvoice.policies import (
    AlignAtt,
    DecisionPolicy,
    Edatt,
    FrameSchedule,
    HoldN,
    LocalAgreement,
    Offline,
    SharedPrefix,
    StridedWaitK,
    WaitK,
    choose_policy,
    format_policy,
    parse_policy,
)
from earvoice.runtime.audio_format import AudioFormat
from earvoice.runtime.tls import ChannelTls

__all__ = [
    "PRESETS",
    "AccessDeniedError",
    "Advice",
    "AlignAtt",
    "AudioFormat",
    "AudioSourceError",
    "ChannelTls",
    "Committed",
    "CommittedWord",
    "DecisionPolicy",
    "Edatt",
    "EndOfUtterance",
    "Endpointing",
    "FrameSchedule",
    "GoAway",
    "HistorySelection",
    "HoldN",
    "InvalidRequestError",
    "LocalAgreement",
    "ModelCatalog",
    "ModelDescription",
    "NotServedError",
    "NotUnderstood",
    "Offline",
    "Preset",
    "ProtocolError",
    "Reconnected",
    "RequestRefusedError",
    "ResumePoint",
    "SegmentDone",
    "ServerBusyError",
    "ServerFaultError",
    "ServerUnavailableError",
    "SessionEndedError",
    "SharedPrefix",
    "StageTimings",
    "Started",
    "StridedWaitK",
    "Summary",
    "Tentative",
    "TranslationClient",
    "TranslationError",
    "TranslationEvent",
    "TranslationOptions",
    "TranslationStream",
    "TranslationUpdate",
    "WaitK",
    "choose_policy",
    "connect",
    "find_preset",
    "format_policy",
    "join_words",
    "parse_policy",
]
