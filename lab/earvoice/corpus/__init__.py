"""From sentence pairs to cached speech features: selection, synthesis, features.

Every step is seeded, shows its progress and continues where it stopped;
``python -m earvoice.corpus --help`` lists the steps.
"""
