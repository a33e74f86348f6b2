"""Checks our policies and services against recorded output of the papers' released code."""
