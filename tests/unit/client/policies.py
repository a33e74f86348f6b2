"""Every decision policy with any parameters, as the wire can tell them."""

from hypothesis import strategies as st

from earvoice.client.policy import (
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
# Proto3 cannot tell False, or zero, from unset where there is no presence.
FLAG = st.sampled_from([None, True])


def unset_or(lowest: int, highest: int):
    return st.none() | st.integers(lowest, highest)


POLICY = st.one_of(
    st.builds(
        Edatt,
        alpha=st.none() | st.floats(0, 1),
        lambda_states=unset_or(1, 64),
        attention_layer=LAYER,
        normalization=st.sampled_from([None, "l1", "l2"]),
        allow_early_end=FLAG,
        attention_heads=HEADS,
    ),
    st.builds(
        AlignAtt,
        frames=unset_or(1, 256),
        attention_layer=LAYER,
        attention_heads=HEADS,
        allow_early_end=FLAG,
    ),
    st.builds(LocalAgreement, n=unset_or(2, 64)),
    st.builds(SharedPrefix, n=unset_or(1, 8)),
    st.builds(HoldN, n=unset_or(0, 64)),
    st.builds(
        WaitK,
        k=unset_or(1, 64),
        detection=st.sampled_from([None, "fixed", "adaptive"]),
        inclusive=FLAG,
        count_partial_word=st.none() | st.booleans(),
        end_while_reading=st.sampled_from([None, "stop", "avoid", "commit"]),
    ),
    st.builds(
        StridedWaitK,
        k=unset_or(1, 64),
        stride_ms=unset_or(40, 4000),
        stride_words=unset_or(1, 16),
        catch_up=st.none() | st.floats(0.1, 4),
    ),
    st.builds(
        FrameSchedule,
        wait_frames=unset_or(1, 2000),
        stride_frames=unset_or(1, 500),
        tokens=unset_or(1, 16),
        max_length_ratio=st.none() | st.floats(0.1, 10),
    ),
    st.just(Offline()),
)
