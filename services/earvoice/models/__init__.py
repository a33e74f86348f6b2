"""The speech translation networks, their features, vocabularies and checkpoints."""
