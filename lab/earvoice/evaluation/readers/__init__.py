"""Logs of translations, ours and those of the field's tools."""
