"""The encoder service: audio in, CTC-compressed states and source evidence out."""
