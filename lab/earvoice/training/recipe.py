"""Every number of the training recipe."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class AugmentationRecipe:
    """How cached log-mel features are varied; chances are per example, levels in nats or dB.

    One nat of log power is 4.34 dB.
    """

    warp_chance: float = 0.6
    warp_range: tuple[float, float] = (0.87, 1.15)
    tempo_chance: float = 0.4
    tempo_range: tuple[float, float] = (0.9, 1.15)
    equaliser_chance: float = 0.5
    equaliser_nats: float = 1.5
    reverberation_chance: float = 0.15
    gain_db: tuple[float, float] = (-12.0, 6.0)
    quiet_chance: float = 0.08
    quiet_gain_db: tuple[float, float] = (-40.0, -15.0)
    noise_chance: float = 0.5
    noise_snr_db: tuple[float, float] = (10.0, 40.0)
    babble_chance: float = 0.05
    babble_snr_db: tuple[float, float] = (10.0, 25.0)
    floor_nats: tuple[float, float] = (-8.0, 6.0)
    telephone_chance: float = 0.15
    frequency_masks: int = 1
    frequency_mask_bins: int = 10
    time_masks: int = 1
    time_mask_frames: int = 16


GENTLE = AugmentationRecipe(
    warp_chance=0.3,
    tempo_chance=0.3,
    equaliser_chance=0.3,
    equaliser_nats=0.8,
    reverberation_chance=0.0,
    gain_db=(-6.0, 4.0),
    quiet_chance=0.0,
    noise_chance=0.3,
    noise_snr_db=(15.0, 40.0),
    babble_chance=0.0,
    floor_nats=(0.0, 6.0),
    telephone_chance=0.0,
    frequency_masks=0,
    time_masks=0,
)
"""What a network hears that cannot read yet."""


@dataclass(frozen=True)
class TextRecipe:
    """How the translation half is trained on text.

    Attributes:
        batch_sentences: inputs of a batch, each of one sentence or a few.
        buckets: batches that are cut from one draw sorted by length.
        spoken_repeats: how often the spoken sentences count, beside all others.
        substitution_chance: pieces of a transcript that are misheard.
        drop_chance: pieces that are not heard at all.
        blank_chance: a blank stands between two pieces.
        weight: weight of the loss beside that of speech.
        every_steps: text comes every so many steps.
        distilled: a teacher's translations count beside people's.
    """

    batch_sentences: int = 32
    buckets: int = 8
    spoken_repeats: int = 2
    substitution_chance: float = 0.1
    drop_chance: float = 0.05
    blank_chance: float = 0.75
    weight: float = 0.5
    every_steps: int = 2
    distilled: bool = False


HEARD_EXACTLY = TextRecipe(substitution_chance=0.0, drop_chance=0.0, blank_chance=0.0)
"""What a text-to-text teacher learns from: nothing is misheard."""

READ_EXACTLY = TextRecipe(substitution_chance=0.0, drop_chance=0.0)
"""What a speech translation model reads as its own teacher: with the blanks of speech."""


@dataclass(frozen=True)
class TeacherRecipe:
    """Size and training of a text-to-text teacher: about 10 million parameters."""

    seed: int = 3
    width: int = 256
    heads: int = 4
    encoder_layers: int = 5
    decoder_layers: int = 4
    dropout: float = 0.1
    peak_learning_rate: float = 1.0e-3
    warmup_steps: int = 400
    label_smoothing: float = 0.1
    gradient_norm: float = 1.0


@dataclass(frozen=True)
class TrainingRecipe:
    """The whole recipe of one stage.

    Attributes:
        peak_learning_rate: AdamW's learning rate after `warmup_steps`, falling linearly to
            `final_learning_rate` at the end of the run.
        decay_share: share of the run in which it falls, from 0 to 1; it is constant before.
        lower_learning_rate: that of the layers up to the CTC head, as a share of the others', at
            the start of the run and from a third of it on.
        ctc_weight: weight of the CTC loss at the start and at the end; cross-entropy has 1.
        dropout: of the decoder and the layers above the CTC head.
        lower_dropout: of the layers below it, where augmentation does the work.
        anchor_weight: weight of `anchor_loss` while the network learns to read.
        batch_frames: feature frames of a batch, padding included, while the halves of the
            network are trained apart and when they are trained together.
        apart_frames: longest clip that is heard while they are trained apart.
        together_ctc: running CTC loss, nats a token, below which they are trained together.
        together_progress: share of the run after which they are trained together at the latest.
        joined_share: examples made of several sentences, reached after `joined_progress`.
        real_repeats: how often real transcribed clips are heard in an epoch.
        neural_repeats: how often what neural voices say is heard in an epoch.
        gentle_augmentation: what is heard until the network is trained as a whole.
        empty_share: examples of noise and babble with an empty target.
        empty_babble_chance: chance that such an example is babble.
        empty_babble_nats: how loud the babble is, its mean log-mel.
        distilled_share: chance that a spoken sentence's target is a teacher's instead of gold.
        truncated_share: chance that a translated example is cut off in mid-sentence, once the
            network is trained together.
    """

    seed: int = 1
    peak_learning_rate: float = 1.5e-3
    final_learning_rate: float = 2.0e-5
    decay_share: float = 1.0
    lower_learning_rate: tuple[float, float] = (1.0, 1.0)
    warmup_steps: int = 400
    weight_decay: float = 0.01
    gradient_norm: float = 2.0
    dropout: float = 0.1
    lower_dropout: float = 0.0
    label_smoothing: float = 0.1
    ctc_weight: tuple[float, float] = (1.0, 0.4)
    anchor_weight: float = 1.0
    batch_frames: tuple[int, int] = (12_000, 12_000)
    maximum_frames: int = 1_900
    apart_frames: int = 400
    together_ctc: float = 1.4
    together_progress: float = 0.4
    joined_share: float = 0.5
    joined_progress: float = 0.33
    joined_frames: tuple[int, int] = (500, 1_600)
    pause_frames: tuple[int, int] = (10, 80)
    edge_frames: tuple[int, int] = (0, 80)
    real_repeats: int = 4
    neural_repeats: int = 6
    empty_share: float = 0.03
    empty_babble_chance: float = 0.5
    empty_babble_nats: tuple[float, float] = (2.0, 12.0)
    distilled_share: float = 0.0
    truncated_share: float = 0.0
    source_pieces: int = 300
    target_pieces: int = 2_500
    text: TextRecipe = field(default_factory=TextRecipe)
    gentle_augmentation: AugmentationRecipe = GENTLE
    augmentation: AugmentationRecipe = field(default_factory=AugmentationRecipe)


FIRST_STAGE = TrainingRecipe()
"""A network that knows nothing learns to read, then to write German."""

SECOND_STAGE = TrainingRecipe(
    seed=2,
    peak_learning_rate=1.5e-3,
    decay_share=0.3,
    lower_learning_rate=(0.15, 0.3),
    warmup_steps=100,
    dropout=0.0,
    batch_frames=(8_000, 8_000),
    together_progress=0.0,
    joined_progress=0.0,
    target_pieces=4_000,
    text=TextRecipe(weight=1.0, every_steps=1),
    augmentation=AugmentationRecipe(telephone_chance=0.2),
)
"""A network that grew from the first stage's learns Spanish too, and everything better."""

THIRD_STAGE = replace(
    SECOND_STAGE,
    seed=3,
    peak_learning_rate=1.2e-3,
    decay_share=0.6,
    lower_learning_rate=(0.4, 0.4),
    real_repeats=8,
    truncated_share=0.3,
    source_pieces=1_000,
    augmentation=AugmentationRecipe(telephone_chance=0.3),
)
"""The same network reads in longer pieces, and hears inputs that end in mid-sentence."""


def fine_tuned(recipe: TrainingRecipe) -> TrainingRecipe:
    """Return a recipe for some minutes more of a network that a long run has finished."""
    return replace(
        recipe,
        peak_learning_rate=4.0e-4,
        decay_share=0.8,
        lower_learning_rate=(0.5, 0.5),
        ctc_weight=(recipe.ctc_weight[1], recipe.ctc_weight[1]),
        warmup_steps=50,
    )


def paced(recipe: TrainingRecipe, peak_learning_rate: float) -> TrainingRecipe:
    """Return a recipe with another highest learning rate.

    Raises:
        ValueError: the rate is not above 0, or not below 1.
    """
    if not 0.0 < peak_learning_rate < 1.0:
        message = f"peak_learning_rate = {peak_learning_rate}; allowed: above 0 and below 1"
        raise ValueError(message)
    return replace(recipe, peak_learning_rate=peak_learning_rate)


def truncated(recipe: TrainingRecipe, share: float) -> TrainingRecipe:
    """Return a recipe that hears a share of its examples only in part.

    Raises:
        ValueError: the share is not from 0 to 1.
    """
    if not 0.0 <= share <= 1.0:
        message = f"truncated_share = {share}; allowed: 0 to 1"
        raise ValueError(message)
    return replace(recipe, truncated_share=share)


def distilled(recipe: TrainingRecipe) -> TrainingRecipe:
    """Return a recipe that learns from a teacher's translations as often as from gold ones."""
    text = replace(recipe.text, distilled=True)
    return replace(recipe, distilled_share=0.5, text=text)
