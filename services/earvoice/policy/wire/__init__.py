"""Translates between the public messages and the policy service's own types."""
