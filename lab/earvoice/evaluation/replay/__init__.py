"""Replays any policy on recorded revisions: nothing is encoded, and nothing is decoded twice."""
