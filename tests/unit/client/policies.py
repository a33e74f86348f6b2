"""Every decision policy with any parameters, as the wire can tell them."""

from hypothesis import strategies as st

from earvoice.policies import (
    AlignAtt,
    Edatt,
    FrameSchedule,
    HoldN,
    LocalAgreement,
    Offline,
    SharedPrefix,
    StridedWaitK,
    WaitK,
)

HEADS = st.lists(st.integers(1, 16), unique=True, max_size=4).map(tuple)
LAYER = st.none() | st.integers(1, 6)


def unset_or(lowest: int, highest: int):
    return st.none() | st.integers(lowest, highest)


def frame_schedule(stride: int | None, longer: int | None, **others) -> FrameSchedule:
    wait = None if longer is None else longer + (stride or 1)
    return FrameSchedule(wait, stride, **others)


# Proto3 cannot tell 0.0 from unset where there is no presence: it is the default.
POLICY = st.one_of(
    st.builds(
        Edatt,
        alpha=st.none() | st.floats(0, 1),
        lambda_states=unset_or(1, 64),
        attention_layer=LAYER,
        normalization=st.sampled_from(["l1", "l2"]),
        allow_early_end=st.booleans(),
        attention_heads=HEADS,
    ),
    st.builds(
        AlignAtt,
        frames=unset_or(1, 256),
        attention_layer=LAYER,
        attention_heads=HEADS,
        allow_early_end=st.booleans(),
    ),
    st.builds(LocalAgreement, n=st.integers(2, 64)),
    st.builds(SharedPrefix, n=st.integers(1, 8)),
    st.builds(HoldN, n=st.integers(0, 64)),
    st.builds(
        WaitK,
        k=st.integers(1, 64),
        detection=st.sampled_from(["fixed", "adaptive"]),
        inclusive=st.booleans(),
        count_partial_word=st.booleans(),
        end_while_reading=st.sampled_from(["stop", "avoid", "commit"]),
    ),
    st.builds(
        StridedWaitK,
        k=st.integers(1, 64),
        stride_ms=unset_or(40, 4000),
        catch_up=st.floats(-1, 4),
    ),
    st.builds(StridedWaitK, k=st.integers(1, 64), stride_words=unset_or(1, 16)),
    st.builds(
        frame_schedule,
        stride=unset_or(1, 500),
        longer=unset_or(0, 1500),
        tokens=unset_or(1, 16),
        max_length_ratio=st.floats(0.1, 10),
    ),
    st.just(Offline()),
)
