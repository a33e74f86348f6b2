"""Any policy on recorded revisions: the encoder's work is done once, the decoder's never twice."""
