"""The two services behind us, as far as they are the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc

from earvoice.api.v1 import decoder_service_pb2 as decoder_pb
from earvoice.api.v1 import decoder_service_pb2_grpc as decoder_grpc
from earvoice.api.v1 import encoder_service_pb2 as encoder_pb
from earvoice.api.v1 import encoder_service_pb2_grpc as encoder_grpc
from earvoice.api.v1 import types_pb2
from earvoice.policy.backends.access import Metadata


@dataclass(frozen=True)
class BackendKind:
    """One of the two.

    Attributes:
        name: in messages, logs and metrics.
        health_name: the service's full name.
        open_call: opens a session's stream.
        describe: asks for the model, for so many seconds at most.
    """

    name: str
    health_name: str
    open_call: Callable[[grpc.aio.Channel, Metadata], Any]
    describe: Callable[[grpc.aio.Channel, Metadata, float], Awaitable[types_pb2.ModelDescription]]


def _open_encoder(channel: grpc.aio.Channel, metadata: Metadata) -> Any:
    return encoder_grpc.EncoderServiceStub(channel).Encode(metadata=metadata)


async def _describe_encoder(
    channel: grpc.aio.Channel, metadata: Metadata, timeout_s: float
) -> types_pb2.ModelDescription:
    request = encoder_pb.EncoderServiceDescribeModelRequest()
    stub = encoder_grpc.EncoderServiceStub(channel)
    return (await stub.DescribeModel(request, metadata=metadata, timeout=timeout_s)).model


def _open_decoder(channel: grpc.aio.Channel, metadata: Metadata) -> Any:
    return decoder_grpc.DecoderServiceStub(channel).Decode(metadata=metadata)


async def _describe_decoder(
    channel: grpc.aio.Channel, metadata: Metadata, timeout_s: float
) -> types_pb2.ModelDescription:
    request = decoder_pb.DecoderServiceDescribeModelRequest()
    stub = decoder_grpc.DecoderServiceStub(channel)
    return (await stub.DescribeModel(request, metadata=metadata, timeout=timeout_s)).model


ENCODER = BackendKind(
    "encoder",
    encoder_pb.DESCRIPTOR.services_by_name["EncoderService"].full_name,
    _open_encoder,
    _describe_encoder,
)
DECODER = BackendKind(
    "decoder",
    decoder_pb.DESCRIPTOR.services_by_name["DecoderService"].full_name,
    _open_decoder,
    _describe_decoder,
)
