"""A client made from the protos alone: its imports are gRPC and what protoc generated.

    python -I -S wire_client.py GENERATED_FOLDER SITE_PACKAGES ADDRESS RECORDING.wav

It is run in a process of its own, without the folders of an editable install, and prints what it
saw as one JSON object; the test that started it judges.
"""

import importlib.util
import json
import sys
import wave

GENERATED, SITE_PACKAGES, ADDRESS, RECORDING = sys.argv[1:]
sys.path[:0] = [GENERATED, SITE_PACKAGES]

import grpc  # noqa: E402 - the path stands first

from earvoice.api.v1 import speech_translation_service_pb2 as pb  # noqa: E402
from earvoice.api.v1 import speech_translation_service_pb2_grpc as pb_grpc  # noqa: E402
from earvoice.api.v1 import types_pb2  # noqa: E402

CHUNK_MS = 100
TIMEOUT_S = 120


def read_recording(path):
    """Sample rate and bytes of a mono recording of 16 bits."""
    with wave.open(path) as recording:
        assert (recording.getnchannels(), recording.getsampwidth()) == (1, 2)
        return recording.getframerate(), recording.readframes(recording.getnframes())


def requests(rate_hertz, audio):
    """Config first and once, then the audio."""
    yield pb.StreamingTranslateRequest(
        config=pb.StreamingConfig(
            audio_encoding=types_pb2.AUDIO_ENCODING_LINEAR16,
            sample_rate_hertz=rate_hertz,
            target_language_codes=["de"],
            catch_up=pb.CATCH_UP_EVERY_SEGMENT,
        )
    )
    size = 2 * rate_hertz * CHUNK_MS // 1000
    for begin in range(0, len(audio), size):
        yield pb.StreamingTranslateRequest(audio=audio[begin : begin + size])


def plain(message):
    """A message's own fields, set or not, as what JSON knows."""
    fields = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value = {key: plain_value(value[key]) for key in value}
        elif field.is_repeated:
            value = [plain_value(each) for each in value]
        elif field.message_type is not None:
            value = plain(value) if message.HasField(field.name) else None
        elif field.enum_type is not None:
            value = field.enum_type.values_by_number[value].name
        elif isinstance(value, bytes):
            value = len(value)
        fields[field.name] = value
    return fields


def plain_value(value):
    return plain(value) if hasattr(value, "DESCRIPTOR") else value


def seen(response):
    kind = response.WhichOneof("message")
    message = getattr(response, kind)
    if kind == "summary":
        fields = {"audio_samples": message.audio_samples, "item_count": message.item_count}
        fields |= {"word_count": message.word_count, "segment_count": message.segment_count}
        fields |= {"utterance_count": message.utterance_count}
        fields |= {"merged_segments": message.merged_segments}
    else:
        fields = plain(message)
    return {"seq": response.seq, "kind": kind, **fields}


def modules():
    """Where every loaded module of the product's name comes from; and whether its code is near."""
    ours = {n: m for n, m in sys.modules.items() if n.partition(".")[0] == "earvoice"}
    return {
        "loaded": {n: m.__file__ for n, m in ours.items() if getattr(m, "__file__", None)},
        "services_importable": importlib.util.find_spec("earvoice.policy") is not None,
    }


def main():
    """Stream the recording and tell what came."""
    rate_hertz, audio = read_recording(RECORDING)
    with grpc.insecure_channel(ADDRESS) as channel:
        stub = pb_grpc.SpeechTranslationServiceStub(channel)
        models = stub.ListModels(pb.ListModelsRequest(), timeout=TIMEOUT_S)
        call = stub.StreamingTranslate(requests(rate_hertz, audio), timeout=TIMEOUT_S)
        responses = [seen(response) for response in call]
        code = call.code().name
    told = {
        "rate_hertz": rate_hertz,
        "sample_count": len(audio) // 2,
        "models": [plain(model) for model in models.models],
        "policies": list(models.policies),
        "responses": responses,
        "code": code,
        "modules": modules(),
    }
    json.dump(told, sys.stdout)


main()
