"""The papers' claims, tested on the project's own model: plan, runs, judgement and page."""
