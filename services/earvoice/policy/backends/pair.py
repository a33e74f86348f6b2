"""The channels to the encoder and the decoder, and the model that both serve."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc

from earvoice.api.v1 import decoder_service_pb2 as decoder_pb
from earvoice.api.v1 import decoder_service_pb2_grpc as decoder_grpc
from earvoice.api.v1 import encoder_service_pb2 as encoder_pb
from earvoice.api.v1 import encoder_service_pb2_grpc as encoder_grpc
from earvoice.api.v1 import types_pb2
from earvoice.policy.backends.call import BackendCall, MessageTrace
from earvoice.policy.backends.decoder_stream import DecoderStream
from earvoice.policy.backends.encoder_stream import EncoderStream
from earvoice.policy.stream_options import StreamOptions
from earvoice.runtime.transport import channel_options

_LOG = logging.getLogger("earvoice.policy.backends")

PROBE_INTERVAL_S = 0.2
PROBE_TIMEOUT_S = 2.0


class Backends:
    """The channels to the encoder and the decoder, and the model that both serve.

    Args:
        encoder_target: gRPC target.
        decoder_target: gRPC target.
        starved_s: see `RequestClock`.
    """

    def __init__(
        self,
        encoder_target: str,
        decoder_target: str,
        starved_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._starved_s = starved_s
        options = channel_options()
        self._encoder_channel = grpc.aio.insecure_channel(encoder_target, options=options)
        self._decoder_channel = grpc.aio.insecure_channel(decoder_target, options=options)
        self._encoder = encoder_grpc.EncoderServiceStub(self._encoder_channel)
        self._decoder = decoder_grpc.DecoderServiceStub(self._decoder_channel)
        self.model = types_pb2.ModelDescription()

    async def wait_until_ready(self) -> None:
        """Return once both have answered with the same model; logs while they have not."""
        while True:
            encoder = await self._probe("encoder")
            decoder = await self._probe("decoder")
            if encoder and decoder and encoder.hash == decoder.hash:
                self.model = decoder
                return
            if encoder and decoder:
                _LOG.warning(
                    "encoder and decoder serve different models",
                    extra={"encoder": encoder.hash, "decoder": decoder.hash},
                )
            await asyncio.sleep(PROBE_INTERVAL_S)

    @asynccontextmanager
    async def open(
        self, options: StreamOptions, session_id: str, trace: MessageTrace
    ) -> AsyncIterator[tuple[EncoderStream, DecoderStream]]:
        """Open a session on both; their messages go with the trace that is set when they leave.

        Raises:
            EarvoiceError: one of them refused, or is gone.
        """
        encoder_call = BackendCall(
            self._encoder.Encode(), "encoder", lambda: trace.encoder, self._starved_s
        )
        decoder_call = BackendCall(
            self._decoder.Decode(), "decoder", lambda: trace.decoder, self._starved_s
        )
        try:
            encoder, decoder = EncoderStream(encoder_call), DecoderStream(decoder_call)
            await encoder.open(options, self.model.hash, session_id)
            await decoder.open(options, self.model.hash, session_id)
            yield encoder, decoder
            # Their sessions are free again before ours is.
            await encoder_call.close()
            await decoder_call.close()
        finally:
            encoder_call.cancel()
            decoder_call.cancel()

    async def close(self) -> None:
        """Close the channels."""
        await self._encoder_channel.close()
        await self._decoder_channel.close()

    async def _probe(self, name: str) -> types_pb2.ModelDescription | None:
        try:
            if name == "encoder":
                encoder_request = encoder_pb.EncoderServiceDescribeModelRequest()
                return (
                    await self._encoder.DescribeModel(encoder_request, timeout=PROBE_TIMEOUT_S)
                ).model
            decoder_request = decoder_pb.DecoderServiceDescribeModelRequest()
            return (
                await self._decoder.DescribeModel(decoder_request, timeout=PROBE_TIMEOUT_S)
            ).model
        except grpc.aio.AioRpcError as error:
            _LOG.debug("not ready", extra={"backend": name, "status": error.code().name})
            return None
