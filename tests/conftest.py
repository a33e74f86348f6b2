"""What holds for every test."""

from hypothesis import settings

# A law says nothing about time, and a busy machine would break it by the clock.
settings.register_profile("earvoice", deadline=None)
settings.load_profile("earvoice")
