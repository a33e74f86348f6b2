"""The papers' other systems, trained small and served like any checkpoint: see docs/papers.md."""
