"""A service that is slow on purpose, configured like the real one by its environment.

    python -m tests.e2e.delaying_service encoder|decoder|policy DELAY_MS

The encoder and the decoder are the real ones around networks that compute nothing, and take so
long for each request; on the policy service's event loop something else runs for so long, again and
again.
"""

import asyncio
import os
import sys
import time

from earvoice.runtime.log import configure_logging
from earvoice.runtime.settings import load_settings

GAP_S = 0.001


class EagerVoiceActivity:
    """Hears speech in every window."""

    def __init__(self) -> None:
        self._sample_count = 0

    def accept(self, samples) -> list[float]:
        before = self._sample_count // 512
        self._sample_count += len(samples)
        return [1.0] * (self._sample_count // 512 - before)


class StateNetwork:
    """A network that gives a state for each frame, whatever it hears, and takes its time for it."""

    def __init__(self, network, delay_s: float) -> None:
        self._network = network
        self._delay_s = delay_s

    def __getattr__(self, name: str):
        return getattr(self._network, name)

    def open_voice_activity(self):
        return EagerVoiceActivity().accept

    def encode(self, features):
        """Wait in the engine's thread, then answer."""
        from earvoice.encoder.network import Encoding

        time.sleep(self._delay_s)
        count = -(-len(features) // 4)
        label = (self._network.blank - 1,)
        states = bytes(count * self._network.dimension * 4)
        return Encoding(states, label * count, (1,) * count, label * count)

    def open_encoding(self):
        return self.encode


class WordStrategy:
    """Says one word and ends the sentence, whatever it is given, and takes its time for it."""

    def __init__(self, word: int, end: int, delay_s: float) -> None:
        self._tokens = (word, end)
        self._delay_s = delay_s

    def prepare(self, states, forced):
        """Nothing is needed first."""

    def begin(self, states, prompt):
        """Wait in the engine's thread, then say it."""
        from earvoice.decoder.strategy import PredictedToken, Progress

        time.sleep(self._delay_s)
        count = states.message.state_count
        attention = [1 / count] * count
        return None, Progress([PredictedToken(token, -0.1, attention) for token in self._tokens])

    def step(self, runs):
        raise AssertionError


async def serve_encoder(delay_s: float) -> None:
    """The encoder service around the network of states."""
    from earvoice.api.v1 import encoder_service_pb2_grpc as pb_grpc
    from earvoice.encoder.model import load_model
    from earvoice.encoder.service import SERVICE_NAME, EncoderService
    from earvoice.encoder.settings import EncoderSettings
    from earvoice.runtime.engine import EngineThread
    from earvoice.runtime.server import ServiceServer

    settings = load_settings(EncoderSettings)
    engine = EngineThread("encoder-engine")
    service = EncoderService(settings, engine)
    server = ServiceServer(settings, [SERVICE_NAME])
    pb_grpc.add_EncoderServiceServicer_to_server(service, server.grpc_server)
    service.serve(StateNetwork(load_model(settings), delay_s))
    await server.start()
    await server.serve_until_stopped(service.drain)
    engine.close()


async def serve_decoder(delay_s: float) -> None:
    """The decoder service around the strategy of one word."""
    from earvoice.api.v1 import decoder_service_pb2_grpc as pb_grpc
    from earvoice.decoder.engine import DecoderEngine
    from earvoice.decoder.loading import load_decoder
    from earvoice.decoder.service import SERVICE_NAME, DecoderService
    from earvoice.decoder.settings import DecoderSettings
    from earvoice.runtime.server import ServiceServer

    settings = load_settings(DecoderSettings)
    service = DecoderService(settings)
    server = ServiceServer(settings, [SERVICE_NAME])
    pb_grpc.add_DecoderServiceServicer_to_server(service, server.grpc_server)
    loaded = load_decoder(settings)
    tokens = loaded.model.tokens
    word = tokens.starts_word.index(True)
    engine = DecoderEngine(WordStrategy(word, tokens.end_token, delay_s))
    engine.start()
    service.serve(loaded.model, engine)
    await server.start()
    await server.serve_until_stopped(service.drain)
    await engine.close()


async def serve_policy(delay_s: float) -> None:
    """The policy service, whose event loop has something else to do."""
    from earvoice.policy.server import serve
    from earvoice.policy.settings import PolicySettings

    async def starve() -> None:
        while True:
            # Shorter than a request takes: else all of them might fall between two long turns.
            await asyncio.sleep(GAP_S)
            time.sleep(delay_s)  # noqa: ASYNC251 - the loop shall stand still

    starving = asyncio.create_task(starve())
    await serve(load_settings(PolicySettings), asyncio.get_running_loop()._selector)
    starving.cancel()


def main() -> None:
    from earvoice.runtime.engine import LoopLagSelector

    service, delay_s = sys.argv[1], float(sys.argv[2]) / 1000
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    configure_logging(service, "INFO")
    serve = {"encoder": serve_encoder, "decoder": serve_decoder, "policy": serve_policy}[service]
    with asyncio.Runner(
        loop_factory=lambda: asyncio.SelectorEventLoop(LoopLagSelector())
    ) as runner:
        runner.run(serve(delay_s))


if __name__ == "__main__":
    main()
