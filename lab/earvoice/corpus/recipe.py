"""The data recipe: languages, and how much of each source is read as text and synthesised."""

from __future__ import annotations

SOURCE_LANGUAGE = "en"
TARGET_LANGUAGES = ("de", "es")
"""In addition to captions in the source language; BCP-47 tags, as in the text files' names."""

SEED = 1
HELD_OUT_SENTENCES = {"cocoa_mt": 100}
"""Number of a source's sentences that are kept for testing, in each language's file."""
DEV_SENTENCES = {"tatoeba": 200}
LEAST_DEV_WORDS = 8

_PROGRAMMING = (
    *("php_manual", "rust_book", "react_docs", "python_docs", "comprehensive_rust", "learn_git"),
    *("carpentries", "elixir_school", "element_ui", "openstack_horizon", "raspberrypi_projects"),
    *("raspberrypi_more", "django_girls"),
)
MOST_SENTENCES = {**dict.fromkeys(_PROGRAMMING, 1000), "openstax": 8000}
"""Only a little of each: people do not talk like manuals and textbooks."""

SPOKEN_SHARES = {
    "customer-chat": 1.0,
    "restaurant": 1.0,
    "cocoa_mt": 1.0,
    "xsid": 1.0,
    "ud_pud": 1.0,
    "african_storybook": 0.5,
    "renpy_dialogue": 0.5,
    "corona_warn_app": 0.5,
    "mozilla_www": 0.3,
    "aosp_apps": 0.3,
    "vita_min": 0.2,
    "xquad": 0.2,
    "gnome_help": 0.1,
    "mt_geneval": 0.06,
    "irs_direct_file": 0.05,
    "privacy_guides": 0.03,
    "tatoeba": 0.03,
}
"""Share of a source's sentences that are synthesised; all of them are read as text."""
LEAST_SPOKEN_WORDS = {"tatoeba": 6}

TEXT_WEIGHTS = {
    "cocoa_mt": 12,
    "customer-chat": 4,
    **dict.fromkeys(
        ("restaurant", "xsid", "ud_pud", "xquad", "african_storybook", "mt_geneval", "vita_min",
         "corona_warn_app", "aosp_apps"), 2,
    ),
    **dict.fromkeys(
        (*_PROGRAMMING, "gnome_help", "privacy_guides", "monero_site", "bitcoin_org", "login_gov",
         "login_gov_help", "opensource_guide", "innersource_path", "mattermost_ui", "talkback",
         "ubports_docs", "duckduckgo", "id_editor", "thunderbird_android", "fenix", "mozilla_vpn",
         "mozilla_relay", "twelve_factor", "stardew_mods", "justice40", "wikipedia_app"), 0,
    ),
}  # fmt: skip
"""How often each text of a source is used in one pass of the translation training; others once.
Manuals say what nobody says, at length."""
LANGUAGE_WEIGHTS = {"es": 3}
"""Further factor by language, others 1: Spanish has fewer texts and lags behind."""
SHORT_TATOEBA_SHARE = 0.4
"""Share of Tatoeba's sentences of fewer than five words that is used."""

FOREIGN_LANGUAGES = ("de", "es", "fr", "it", "pl", "tr", "ru", "hi", "cmn", "nl")
"""Languages in which espeak-ng reads text of a target language: speech without any English."""

MORE_FOREIGN_LANGUAGES = ("pt", "sv", "da", "ro", "cs", "ca", "hu", "el", "id", "fi")
"""Further languages, used for a part of that talk."""

SPOKEN_INPUTS = 5_250
"""Synthesised inputs, each of one sentence or a few consecutive ones; eight hours."""
NOTHING_CLIPS, LONG_NOTHING_CLIPS = 900, 360
"""Silence, noise, music, babble and other languages: nothing should be written. The long ones are
mostly other languages, 8 to 20 s, as long as utterances that a live stream is cut into."""
FOREIGN_TALK_CLIPS = 600
"""Talk in the target languages, for which nothing should be written either: what begins with
"Okay" or "Hallo" may go on in German."""
BRANCH_TALK_CLIPS, BRANCH_PICO_CLIPS, BRANCH_PICO_INPUTS = 5_000, 1_500, 1_500
"""For the CTC branch alone, eleven hours: more such talk, by espeak-ng and by Pico, and English by
Pico, so that no voice gives away the language. The decoder does not need so much of it."""
BRANCH_BACKWARDS_CLIPS = 1_500
"""Also for the branch, two hours: recordings played backwards. Without them, a branch that knows
many words finds some in sounds of speech that are none."""
BRANCH_SHORT_CLIPS, BRANCH_PICO_SHORT_CLIPS = 2_000, 1_000
"""Also for the branch, 80 minutes: English of one to three words by every engine. Answers are
short, and where the branch finds no words, nothing is written."""
TALK_SOURCES = ("customer-chat", "restaurant", "cocoa_mt", "xsid")
HELD_OUT_SPOKEN = {"customer-chat": 200, "tatoeba": 200}
"""By source, number of the dev split's sentences that voices speak which training never uses."""
