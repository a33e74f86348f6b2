"""Training the shipped model: vocabularies, CTC beside the pretrained encoder, the decoder."""
