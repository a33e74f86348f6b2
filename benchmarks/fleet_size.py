"""How large a fleet is on paper: `python benchmarks/fleet_size.py --streams 1000 100000`.

Nothing is measured here. Measure what a live stream costs with `benchmarks/live_streams.py` on the
kind of machine that the fleet will use; the defaults are those of docs/operations.md.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

BYTES_PER_SAMPLE, BYTES_PER_STATE_VALUE = 2, 4
# Share of a core of the test machine, from live_streams.py.
POLICY_CORES, ENCODER_CORES, DECODER_CORES = 0.017, 0.086, 0.133


@dataclass(frozen=True)
class Stream:
    """Resources that one live stream needs.

    Attributes:
        policy_cores, encoder_cores, decoder_cores: share of a core of each service.
        sample_rate_hz: of its audio, LINEAR16.
        states_per_s: encoder states, without compression.
        state_width: numbers in a state.
        utterance_s: mean length of an utterance.
        segment_s: time between two decisions.
    """

    policy_cores: float
    encoder_cores: float
    decoder_cores: float
    sample_rate_hz: int
    states_per_s: float
    state_width: int
    utterance_s: float
    segment_s: float

    @property
    def audio_bytes_per_s(self) -> float:
        """From client to policy service, and from there to an encoder."""
        return self.sample_rate_hz * BYTES_PER_SAMPLE

    @property
    def state_bytes_per_s(self) -> float:
        """From encoder to policy service, and from there to a decoder.

        Each segment carries the states of its whole utterance so far: on average half of it.
        """
        bytes_per_s_of_audio = self.states_per_s * self.state_width * BYTES_PER_STATE_VALUE
        return bytes_per_s_of_audio * self.utterance_s / 2 / self.segment_s


def fleet_row(streams: int, stream: Stream, busy: float, policy_sessions: int) -> str:
    """A line of the table."""
    encoders = math.ceil(streams * stream.encoder_cores / busy)
    decoders = math.ceil(streams * stream.decoder_cores / busy)
    policies = math.ceil(streams / policy_sessions)
    edge = streams * stream.audio_bytes_per_s * 8 / 1e9
    inside = streams * (stream.audio_bytes_per_s + 2 * stream.state_bytes_per_s) * 8 / 1e9
    connections = policies * (encoders + decoders)
    return (
        f"| {streams:,} | {encoders:,} | {decoders:,} | {policies:,} | {edge:,.3g} | {inside:,.3g} "
        f"| {connections:,} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[100, 1000, 10_000, 100_000])
    parser.add_argument("--policy-cores", type=float, default=POLICY_CORES)
    parser.add_argument("--encoder-cores", type=float, default=ENCODER_CORES)
    parser.add_argument("--decoder-cores", type=float, default=DECODER_CORES)
    parser.add_argument("--busy", type=float, default=0.7, help="share of an engine's core used")
    parser.add_argument("--policy-sessions", type=int, default=64, help="of one policy replica")
    parser.add_argument("--sample-rate-hz", type=int, default=16_000)
    parser.add_argument("--states-per-s", type=float, default=25.0)
    parser.add_argument("--state-width", type=int, default=384)
    parser.add_argument("--utterance-s", type=float, default=10.0)
    parser.add_argument("--segment-s", type=float, default=0.64)
    options = vars(parser.parse_args())
    counts, busy = options.pop("streams"), options.pop("busy")
    policy_sessions = options.pop("policy_sessions")
    stream = Stream(**options)
    print(f"audio {stream.audio_bytes_per_s / 1000:.3g} kB/s a stream, twice;", end=" ")
    print(f"states {stream.state_bytes_per_s / 1000:.3g} kB/s, twice; edge and inside in Gbit/s")
    print("| streams | encoders | decoders | policies | edge | inside | connections |")
    print("|---|---|---|---|---|---|---|")
    for count in counts:
        print(fleet_row(count, stream, busy, policy_sessions))


if __name__ == "__main__":
    main()
