"""Models of other families: `transformers` computes them, this package adapts them to the services.

Speech2Text, SpeechEncoderDecoderModel (wav2vec 2.0 with mBART-50) and Whisper. None has a CTC head:
no labels, no compression, one state for each encoder frame.
"""
