"""Epochs, batches and schedules."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.training.bucketing import make_batches
from earvoice.training.example import Example, SpokenClip, plan_epoch
from earvoice.training.recipe import TrainingRecipe, paced, truncated
from earvoice.training.schedule import (
    batch_frames,
    ctc_weight,
    decays,
    joined_share,
    learning_rate,
    lower_rate_share,
)
from earvoice.training.truncation import truncate

RECIPE = TrainingRecipe()
POOL = [
    SpokenClip(index, f"group-{index // 7}", 120 + 37 * (index % 11), translated=index % 10 != 0)
    for index in range(300)
]


def test_an_epoch_holds_every_translated_clip_once() -> None:
    """Joining loses and repeats nothing."""
    examples = plan_epoch(POOL, 0, 0.5, RECIPE)
    heard = [clip for example in examples for clip in example.clips]
    for clip in POOL:
        assert heard.count(clip.index) == 1


def test_a_clip_is_heard_as_often_as_it_says() -> None:
    """Translated or not; whole conversations are repeated, in their order."""
    pool = [replace(clip, repeats=3 if clip.index < 70 else 2) for clip in POOL]
    examples = plan_epoch(pool, 0, 0.5, RECIPE)
    heard = [clip for example in examples for clip in example.clips]
    for clip in pool:
        assert heard.count(clip.index) == clip.repeats


def test_joined_inputs_stay_within_the_limit_and_in_order() -> None:
    """A joined input is at most `maximum_frames` long and keeps the order of a conversation."""
    examples = plan_epoch(POOL, 3, 1.0, RECIPE)
    joined = [example for example in examples if len(example.clips) > 1]
    assert joined
    for example in joined:
        assert example.frames <= RECIPE.maximum_frames
        for earlier, later in zip(example.clips, example.clips[1:], strict=False):
            if POOL[earlier].group == POOL[later].group:
                assert earlier < later


def test_clips_without_translation_are_never_joined() -> None:
    """A joined input has a whole translation or none."""
    for example in plan_epoch(POOL, 1, 1.0, RECIPE):
        if len(example.clips) > 1:
            assert all(POOL[clip].translated for clip in example.clips)


def test_epochs_are_repeatable_and_differ() -> None:
    """The seed and the epoch's number decide everything."""
    assert plan_epoch(POOL, 2, 0.3, RECIPE) == plan_epoch(POOL, 2, 0.3, RECIPE)
    assert plan_epoch(POOL, 2, 0.3, RECIPE) != plan_epoch(POOL, 3, 0.3, RECIPE)
    other = replace(RECIPE, seed=RECIPE.seed + 1)
    assert plan_epoch(POOL, 2, 0.3, RECIPE) != plan_epoch(POOL, 2, 0.3, other)


def test_no_share_of_truncated_examples_leaves_an_epoch_as_it_is() -> None:
    """Trainings with and without truncated inputs differ in those inputs alone."""
    examples = plan_epoch(POOL, 2, 0.5, RECIPE)
    assert truncate(examples, POOL, 2, RECIPE) == examples
    some = truncate(examples, POOL, 2, truncated(RECIPE, 0.3))
    whole = [example for example in some if example.heard_share == 1.0]
    assert [example for example in examples if example in whole] == whole
    translated = [it for it in examples if it.clips and POOL[it.clips[0]].translated]
    assert (len(some) - len(whole)) / len(translated) == pytest.approx(0.3, abs=0.07)


def test_truncated_examples_are_repeatable_and_differ() -> None:
    """The seed and the epoch's number decide which are cut off, and where."""
    recipe, examples = truncated(RECIPE, 0.5), plan_epoch(POOL, 2, 0.5, RECIPE)
    once = truncate(examples, POOL, 2, recipe)
    assert truncate(examples, POOL, 2, recipe) == once
    assert truncate(examples, POOL, 3, recipe) != once
    assert truncate(examples, POOL, 2, replace(recipe, seed=recipe.seed + 1)) != once


@given(st.integers(0, 20))
def test_a_truncated_example_is_the_beginning_of_a_translated_one(epoch: int) -> None:
    """It has the first clips and the seed, the last clip is heard in part, and it is shorter."""
    examples = plan_epoch(POOL, epoch, 0.5, RECIPE)
    cut = truncate(examples, POOL, epoch, truncated(RECIPE, 1.0))
    for before, after in zip(examples, cut, strict=True):
        if not before.clips or not POOL[before.clips[0]].translated:
            assert after == before
            continue
        assert after.seed == before.seed
        assert after.clips == before.clips[: len(after.clips)]
        assert 0.0 <= after.heard_share < 1.0
        assert RECIPE.edge_frames[1] <= after.frames <= before.frames


def test_a_share_beyond_everything_is_refused() -> None:
    """A share is from 0 to 1."""
    with pytest.raises(ValueError, match=r"truncated_share = 1\.5; allowed: 0 to 1"):
        truncated(RECIPE, 1.5)


def test_a_rate_that_cannot_be_is_refused() -> None:
    """A rate of 0 learns nothing, and 1 or more nothing good."""
    assert paced(RECIPE, 0.001).peak_learning_rate == 0.001
    with pytest.raises(ValueError, match=r"peak_learning_rate = 1\.0; allowed: above 0 and below"):
        paced(RECIPE, 1.0)


@given(
    st.lists(st.integers(20, 1_900), min_size=1, max_size=200),
    st.integers(1_000, 20_000),
    st.integers(0, 5),
)
def test_batches_hold_every_example_within_the_limit(
    lengths: list[int], limit: int, seed: int
) -> None:
    """Padded frames stay within the limit, unless one example alone exceeds it."""
    examples = [Example((index,), frames, index) for index, frames in enumerate(lengths)]
    batches = make_batches(examples, limit, seed)
    assert sorted(example.seed for batch in batches for example in batch) == list(
        range(len(lengths))
    )
    for batch in batches:
        padded = max(example.frames for example in batch) * len(batch)
        assert padded <= limit or len(batch) == 1


def test_learning_rate_rises_then_falls() -> None:
    """Warm-up counts steps, decay counts progress, and the end is the final rate."""
    assert learning_rate(0, 0.0, RECIPE) < learning_rate(100, 0.0, RECIPE)
    at_peak = learning_rate(RECIPE.warmup_steps, 0.0, RECIPE)
    assert abs(at_peak - RECIPE.peak_learning_rate) < 1e-9
    assert learning_rate(10_000, 0.5, RECIPE) < at_peak
    assert abs(learning_rate(10_000, 1.0, RECIPE) - RECIPE.final_learning_rate) < 1e-9


def test_a_constant_rate_falls_only_at_the_end() -> None:
    """With a decay over the last fifth, the rate is the same from warm-up to four fifths."""
    recipe = replace(RECIPE, decay_share=0.2)
    early, late = (learning_rate(10_000, progress, recipe) for progress in (0.1, 0.8))
    assert abs(early - recipe.peak_learning_rate) < 1e-9
    assert abs(late - recipe.peak_learning_rate) < 1e-9
    assert not decays(0.7, recipe)
    assert decays(0.9, recipe)
    half = (recipe.peak_learning_rate + recipe.final_learning_rate) / 2
    assert abs(learning_rate(10_000, 0.9, recipe) - half) < 1e-9


def test_weights_and_shares_reach_their_ends() -> None:
    """The CTC weight falls from first to last; joined inputs come gradually."""
    assert ctc_weight(0.0, RECIPE) == RECIPE.ctc_weight[0]
    assert abs(ctc_weight(1.0, RECIPE) - RECIPE.ctc_weight[1]) < 1e-9
    rising = replace(RECIPE, lower_learning_rate=(0.2, 0.5))
    shares = [lower_rate_share(progress, rising) for progress in (0.0, 1 / 6, 1 / 3, 1.0)]
    assert shares == pytest.approx([0.2, 0.35, 0.5, 0.5])
    assert joined_share(0.0, RECIPE) == 0.0
    assert joined_share(1.0, RECIPE) == RECIPE.joined_share
    assert batch_frames(together=False, recipe=RECIPE) == RECIPE.batch_frames[0]
    assert batch_frames(together=True, recipe=RECIPE) == RECIPE.batch_frames[1]
