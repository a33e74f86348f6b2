"""The ``earvoice`` command."""
