"""The zip archive that a `.pt` checkpoint is."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from earvoice.models.errors import CheckpointError
from earvoice.models.loaders.pickled import RestrictedUnpickler

MAX_PICKLE_BYTES = 64 * 2**20


@contextmanager
def open_archive(path: Path) -> Iterator[dict[str, Any]]:
    """Read a `.pt` file in PyTorch's zip format.

    Yields:
        The pickled dictionary; configuration objects are `Opaque`, tensors `StoredTensor`s that can
        be read as long as the archive is open.

    Raises:
        CheckpointError: not such an archive, damaged, compressed, or its pickle too large.
        UnsafePickleError: its pickle asks for anything a checkpoint never needs.
    """
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        message = f"checkpoint {path.name}: not a readable zip archive ({error})"
        raise CheckpointError(message) from error
    with archive:
        yield _content(archive, path.name)


def _content(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    entry = _pickle_entry(archive, name)

    def read_storage(key: str) -> bytes:
        return _read(archive, f"{entry.removesuffix('data.pkl')}data/{key}", name)

    try:
        content = RestrictedUnpickler(_read(archive, entry, name), read_storage).load()
    except CheckpointError:
        raise
    except Exception as error:
        # A damaged pickle raises almost any built-in exception, according to where it breaks.
        message = f"checkpoint {name}: its pickle is damaged ({type(error).__name__}: {error})"
        raise CheckpointError(message) from error
    if not isinstance(content, dict):
        message = f"checkpoint {name} holds a {type(content).__name__}; allowed: a dictionary"
        raise CheckpointError(message)
    return content


def _pickle_entry(archive: zipfile.ZipFile, name: str) -> str:
    """The name of the archive's only pickle.

    Raises:
        CheckpointError: there is none or more, an entry is compressed, or the pickle is too large.
    """
    pickles = [item for item in archive.infolist() if item.filename.endswith("/data.pkl")]
    if len(pickles) != 1:
        message = f"checkpoint {name} has {len(pickles)} entries data.pkl; allowed: exactly 1"
        raise CheckpointError(message)
    for item in archive.infolist():
        if item.compress_type != zipfile.ZIP_STORED:
            message = f"checkpoint {name} compresses {item.filename}; allowed: stored entries"
            raise CheckpointError(message)
    if pickles[0].file_size > MAX_PICKLE_BYTES:
        message = (
            f"checkpoint {name} has a pickle of {pickles[0].file_size} bytes; "
            f"allowed: {MAX_PICKLE_BYTES}"
        )
        raise CheckpointError(message)
    return pickles[0].filename


def _read(archive: zipfile.ZipFile, entry: str, name: str) -> bytes:
    try:
        return archive.read(entry)
    except KeyError as error:
        message = f"checkpoint {name} lacks {entry}"
        raise CheckpointError(message) from error
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError) as error:
        # The last two: a name that is no UTF-8, an entry that claims to be encrypted.
        message = f"checkpoint {name}: {entry} is damaged ({error})"
        raise CheckpointError(message) from error
