"""The archive that `replay` reads: redacted requests of the last days, compressed, one file a batch of the flusher.

``archive/DATE/HOUR/FIRST-LAST.zst`` holds the requests with the sequence numbers FIRST to LAST, as MessagePack; date
and hour are those of its newest request's receipt. A file is whole or not there. Batches come in order, so what a
restarted flusher reads again from the log is known by its number and not written twice. Small files are merged; a file
whose range lies within another's is a leftover of that.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from collector.archived import ArchivedRequest, EncodedRequest
from collector.durable import sync, write_whole

logger = logging.getLogger(__name__)

#: Files of an hour before they are merged, and the size of a file that is merged no further, in bytes.
_MERGE_FROM = 32
_WHOLE_BYTES = 512 * 1024
_LEVEL = 3
_SUFFIX = ".zst"
_DECODER = msgspec.msgpack.Decoder(list[ArchivedRequest])
_PARTS = msgspec.msgpack.Decoder(list[msgspec.Raw])
#: A request that is written: MessagePack is written as it is.
_Request = ArchivedRequest | msgspec.Raw
_T = TypeVar("_T")


class ArchiveFile(NamedTuple):
    """A file of the archive: the numbers that it spans, and the hour of receipt that it belongs to."""

    first: int
    last: int
    hour: datetime
    path: Path


class UnreadableArchive(OSError):  # noqa: N818 - a state of the file
    """A file of the archive that cannot be decoded."""


class Archive:
    """The archive of one data folder. One writer, the flusher; any number of readers."""

    def __init__(self, folder: Path, days: float) -> None:
        """``days``: how long requests are kept; 0 keeps none."""
        self.folder = Path(folder)
        self._days = days
        #: Requests up to this number are archived, or hold nothing to archive.
        self.last_seq = max((file.last for file in self.files()), default=0)

    @property
    def is_on(self) -> bool:
        return self._days > 0

    def write(self, requests: Sequence[EncodedRequest]) -> None:
        """Keep the requests, in order of their numbers; durable when it returns. Raises OSError."""
        fresh = [request for request in requests if request.seq > self.last_seq]
        if not fresh:
            return
        first, last = fresh[0].seq, fresh[-1].seq
        folder = self._folder_of(max(request.received_at for request in fresh))
        self._write(folder, first, last, [msgspec.Raw(request.encoded) for request in fresh])
        self.last_seq = last

    def files(self, start: datetime | None = None) -> list[ArchiveFile]:
        """The files that may hold requests received from ``start`` on, in order."""
        whole: list[ArchiveFile] = []
        for file in sorted(self._listed(), key=lambda file: (file.first, -file.last)):
            if not whole or file.last > whole[-1].last:
                whole.append(file)
        return [file for file in whole if start is None or file.hour + timedelta(hours=1) > start]

    def read(self, file: ArchiveFile) -> list[ArchivedRequest]:
        """The requests of a file. Raises UnreadableArchive, OSError."""
        return _decoded(file, _DECODER)

    def rewrite(self, file: ArchiveFile, keep: Callable[[ArchivedRequest], ArchivedRequest | None]) -> bool:
        """Replace the requests of a file by what ``keep`` makes of them; whether anything changed."""
        requests = self.read(file)
        kept = [request for request in map(keep, requests) if request is not None]
        if kept == requests:
            return False
        _put(file.path, kept)  # also where nothing is left: the name says up to where all is archived
        return True

    def insert(self, request: ArchivedRequest, *, is_whole: bool) -> None:
        """Keep a request that comes out of its turn, in place of what the archive has of it, or beside that."""
        holder = next((file for file in self.files() if file.first <= request.seq <= file.last), None)
        if holder is None:
            self._write(self._folder_of(request.received_at), request.seq, request.seq, [request])
            return
        kept = {found.seq: found for found in self.read(holder)}
        known = kept.get(request.seq)
        if known is not None and not is_whole:
            fresh = [item for item in request.items if item not in known.items]
            request = msgspec.structs.replace(request, items=[*known.items, *fresh])
        _put(holder.path, [found for _, found in sorted((kept | {request.seq: request}).items())])

    def merge(self) -> None:
        """Join the small files of each hour that has many."""
        hours: dict[Path, list[ArchiveFile]] = {}
        for file in self.files():
            hours.setdefault(file.path.parent, []).append(file)
        for folder, files in hours.items():
            if len(files) >= _MERGE_FROM:
                self._merge(folder, files)
        self._drop_leftovers()

    def expire(self, now: datetime) -> int:
        """Delete the hours that lie further back than the archive reaches; how many."""
        oldest = now - timedelta(days=self._days)
        old = [folder for folder, hour in self._hours() if hour + timedelta(hours=1) <= oldest or not self.is_on]
        for folder in old:
            shutil.rmtree(folder)
            if not any(folder.parent.iterdir()):
                folder.parent.rmdir()
        return len(old)

    def _merge(self, folder: Path, files: list[ArchiveFile]) -> None:
        group: list[ArchiveFile] = []
        size = 0
        for file in [*files, None]:
            if file is not None and (size < _WHOLE_BYTES or not group):
                group.append(file)
                size += file.path.stat().st_size
                continue
            if len(group) > 1:
                self._join(folder, group)
            group, size = ([file], file.path.stat().st_size) if file is not None else ([], 0)

    def _join(self, folder: Path, parts: Sequence[ArchiveFile]) -> None:
        """One file in place of several. A crash between may leave parts beside it, see ``_drop_leftovers``."""
        requests = [request for part in parts for request in _decoded(part, _PARTS)]
        self._write(folder, min(part.first for part in parts), max(part.last for part in parts), requests)
        for part in parts:
            part.path.unlink(missing_ok=True)

    def _folder_of(self, received_at: int) -> Path:
        return self.folder / datetime.fromtimestamp(received_at / 1e9, UTC).strftime("%Y-%m-%d/%H")

    def _write(self, folder: Path, first: int, last: int, requests: Sequence[_Request]) -> None:
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _put(folder / f"{first:020d}-{last:020d}{_SUFFIX}", requests)
        for above in (folder.parent, self.folder, self.folder.parent) if is_new else ():
            sync(above)

    def _listed(self) -> Iterator[ArchiveFile]:
        for folder, hour in self._hours():
            for path in folder.glob(f"*{_SUFFIX}"):
                first, _, last = path.stem.partition("-")
                if first.isdecimal() and last.isdecimal():
                    yield ArchiveFile(int(first), int(last), hour, path)

    def _hours(self) -> Iterator[tuple[Path, datetime]]:
        for folder in self.folder.glob("*/*"):
            try:
                yield (
                    folder,
                    datetime.strptime(f"{folder.parent.name} {folder.name}", "%Y-%m-%d %H").replace(tzinfo=UTC),
                )
            except ValueError:
                continue  # not ours

    def _drop_leftovers(self) -> None:
        """Parts whose merged file was written when a crash kept them from being deleted; drafts of files."""
        live = {file.path for file in self.files()}
        for folder, _ in self._hours():
            for path in folder.iterdir():
                if path not in live:
                    path.unlink(missing_ok=True)


def _decoded(file: ArchiveFile, decoder: msgspec.msgpack.Decoder[_T]) -> _T:
    try:
        with pa.input_stream(str(file.path), compression="zstd") as stream:
            return decoder.decode(stream.read())
    except (msgspec.MsgspecError, pa.ArrowInvalid, OSError) as error:
        mend = "restore it from a backup, or delete it: `pickwise replay` does without it then"
        raise UnreadableArchive(f"{file.path} cannot be read: {error}; {mend}") from error


def _put(path: Path, requests: Sequence[_Request]) -> None:
    """Write a file so that it is whole or not there."""
    data = pa.Codec("zstd", compression_level=_LEVEL).compress(msgspec.msgpack.encode(requests), asbytes=True)
    write_whole(path, data)
