"""Training a small speech translation model, measuring it, and writing its checkpoint.

``python -m earvoice.training --help`` lists the steps; each says what it reads and writes.
"""
