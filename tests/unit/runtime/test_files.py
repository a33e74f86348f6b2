"""A file is replaced whole or stays as it is."""

from __future__ import annotations

import pytest

from earvoice.runtime.files import atomic_write


def test_the_new_content_comes_at_the_end_of_the_block(tmp_path):
    """Until then a reader sees the old one; nothing else is left in the folder."""
    path = tmp_path / "facts.json"
    path.write_text("old")
    with atomic_write(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_content(tmp_path):
    """And no part of the new one."""
    path = tmp_path / "facts.json"
    path.write_text("old")
    with pytest.raises(OSError, match="disk full"), atomic_write(path) as partial:
        partial.write_text("ne")
        raise OSError("disk full")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
