"""Reads a table's snapshot and changes into pieces, in one session at a time.

What a slot holds is written as pieces before the slot is advanced, so the server has to keep only what was not read
yet, and a batch that is planned again reads the same files.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from watersmeet.connectors.postgres.changes import PIECE_ROWS, Collector, PieceWriter, piece_schema
from watersmeet.connectors.postgres.failures import ANEW
from watersmeet.connectors.postgres.options import PostgresOptions
from watersmeet.connectors.postgres.publication import create_publication, has_publication, own_publication
from watersmeet.connectors.postgres.server import Server, Status, identified, lsn_text, open_server, size_text
from watersmeet.connectors.postgres.slot import Slot, new_name, read_slot, write_slot
from watersmeet.connectors.postgres.snapshot import take_snapshot
from watersmeet.connectors.postgres.table import Declared, Table, described
from watersmeet.errors import CheckpointError, ConnectorError, WatersmeetError
from watersmeet.lookup.connections import Address
from watersmeet.runtime.pieces import Listing, Piece, Pieces

#: So many messages are peeked at in one go: each look decodes the log from where the slot holds it.
_MESSAGES = 100_000
#: The slot is advanced over so many bytes of other tables' changes.
_WORTH_ADVANCING = 1 << 20
_WORTH_WARNING = 1 << 30
_OF_OTHERS = 32 << 20
_OLDEST_VERSION = 130_000


@dataclass(frozen=True, slots=True)
class Subject:
    """What is read, and where to: the stream, its options, the database, the folder of its pieces."""

    declared: Declared
    options: PostgresOptions
    address: Address
    folder: str

    @property
    def what(self) -> str:
        """How errors name what failed."""
        return f"the changes of table {self.options.table} cannot be read"


def inspect(subject: Subject) -> None:
    """Look at the server and the table; raises ``ConnectorError`` where changes cannot be read."""
    server = open_server(subject.address, subject.what)
    try:
        _check_server(server, subject)
        _check_table(server, subject)
    finally:
        server.close()


def _check_server(server: Server, subject: Subject) -> str:
    """Return what identifies the server."""
    ((level, version, encoding, standby),) = server.rows(
        subject.what,
        "SELECT current_setting('wal_level'), current_setting('server_version_num')::int,"
        " current_setting('server_encoding'), pg_is_in_recovery()",
    )
    if version < _OLDEST_VERSION:
        raise ConnectorError(f"{subject.what}: the server is older than PostgreSQL 13")
    if standby:
        raise ConnectorError(f"{subject.what}: the server is a standby", hint="name the primary in the option url")
    if level != "logical":
        raise ConnectorError(
            f"{subject.what}: the server has wal_level = {level}, which logs no changes of rows",
            hint="ALTER SYSTEM SET wal_level = 'logical', and restart the server",
        )
    if encoding == "SQL_ASCII":
        raise ConnectorError(
            f"{subject.what}: the database has the encoding SQL_ASCII: what its bytes mean is not known"
        )
    return identified(server.address, subject.what)


def _check_table(server: Server, subject: Subject, slot: Slot | None = None) -> tuple[Table, str, bool]:
    """Return the table, its publication, and whether that is there.

    Raises ``CheckpointError`` if it is not the one that ``slot`` notes, or has a column that is not.
    """
    table = described(server, subject.options.table, subject.declared)
    if slot is not None:
        _check_same(table, slot, subject)
    given = subject.options.publication
    publication = given or own_publication(table)
    is_there = has_publication(server, publication, table, is_own=given is None, has_begun=slot is not None)
    return table, publication, is_there


def _check_same(table: Table, slot: Slot, subject: Subject) -> None:
    anew = [table.columns[name].name for name, at in table.numbers.items() if slot.columns.get(name, at) != at]
    if table.id != slot.table:
        words = f"table {table.full_name} was dropped and made anew, or is another one"
    elif anew:
        words = (
            f"column {anew[0]} was dropped and made anew, and the values that it has now are not in the server's log"
        )
    else:
        return
    raise CheckpointError(f"{subject.what}: {words}", hint=ANEW)


class Reader:
    """Reads for one query, from when it is made."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._pieces = Pieces(subject.folder)
        self._server = open_server(subject.address, subject.what)
        self.warnings: list[str] = []
        self._looked = 0.0
        self._seen = 0
        self._warned = _WORTH_WARNING
        self._failure: WatersmeetError | None = None
        self._known: list[Piece] = []
        self._noted = 0
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the session."""
        self._server.close()

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces that are there."""
        return tuple(self._known)

    def forget_before(self, number: int) -> None:
        """Delete pieces that no batch reads again."""
        self._pieces.delete_before(number)
        self._known = [*(piece for piece in self._known[:-1] if piece.number >= number), *self._known[-1:]]

    # -- how a run begins ------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        subject, what = self._subject, self._subject.what
        system = _check_server(self._server, subject)
        slot = read_slot(self._pieces)
        name = new_name(subject.declared.stream) if slot is None else slot.name
        # from here on, no other session writes pieces that count, or advances the slot
        self._server.lock(what, name)
        listing = self._pieces.listing()
        if slot is not None and listing.is_complete:
            self._go_on(slot, system, listing)
        else:
            self._begin_anew(name, system, listing)

    def _go_on(self, slot: Slot, system: str, listing: Listing) -> None:
        if system != slot.system:
            raise CheckpointError(
                f"{self._subject.what}: the server is another one than the one that was read before", hint=ANEW
            )
        table, publication, _ = _check_table(self._server, self._subject, slot)
        run, token = self._pieces.begin(listing, listing.next_number)
        self._slot = Slot(slot.name, system, table.id, publication, table.numbers)
        self._known = [*listing.pieces]
        self._noted = listing.position
        self._collector = self._new_collector(table, run, token, listing)
        status = self._status()
        assert status.confirmed is not None  # the slot was checked
        self._advance(status.confirmed)  # it may have been cut off between a piece and the slot

    def _begin_anew(self, name: str, system: str, listing: Listing) -> None:
        what = self._subject.what
        table, publication, is_there = _check_table(self._server, self._subject)
        self._slot = Slot(name, system, table.id, publication, table.numbers)
        run, token = self._pieces.begin(listing, 0)
        write_slot(self._pieces, self._slot)
        self._server.drop_slot(what, name)
        if not is_there:
            create_publication(self._server, publication, table)
        self.warnings += self._server.warnings_of_other_slots(what, name, _OF_OTHERS)
        writer = self._new_writer(run, token, 0)
        take_snapshot(self._server, table, name, writer, what)
        listing = self._pieces.listing()
        self._known = [*listing.pieces]
        self._collector = self._new_collector(table, run, token, listing)

    def _new_writer(self, run: int, token: str, number: int) -> PieceWriter:
        schema = piece_schema(self._subject.declared.schema.names)
        most = min(PIECE_ROWS, self._subject.options.max_rows_per_trigger)
        return PieceWriter(self._pieces, run, token, number, schema, most)

    def _new_collector(self, table: Table, run: int, token: str, listing: Listing) -> Collector:
        writer = self._new_writer(run, token, listing.next_number)
        newest = listing.pieces[-1].time
        return Collector(writer, table, self._subject.declared, listing.position, newest)

    # -- looking for changes -----------------------------------------------------------------------------------------

    def written_until(self) -> int:
        """Return where the server's log ends now: at the end of a record."""
        return self._status().written

    def is_due(self) -> bool:
        """Whether it is time to look for changes."""
        return time.monotonic() - self._looked >= self._subject.options.poll_interval

    def look(self, until: int | None = None) -> bool:
        """Read changes, of commits before ``until``; return whether there may be more.

        Raises ``ConnectorError`` where the changes cannot be followed, ``OutageError`` where that may pass; from
        then on always.
        """
        if self._failure is not None:
            raise self._failure
        try:
            return self._look(until)
        except WatersmeetError as error:
            self._failure = error
            raise

    def _look(self, until: int | None) -> bool:
        what, slot, collector = self._subject.what, self._slot.name, self._collector
        status = self._status()
        self._looked = time.monotonic()
        if status.written == self._seen or (until is not None and self._seen >= until):
            return False
        collector.messages = 0
        data = self._server.peek(what, slot, self._slot.publication, until, _MESSAGES)
        try:
            self._known += collector.take(data)
        finally:
            data.close()
        is_all = collector.messages < _MESSAGES and not collector.is_stopped
        # a record may be written and not flushed: then the server has not looked at it
        limit = status.written if until is None else min(until, status.written)
        if is_all and status.flushed >= limit:
            self._seen = limit
            collector.position = max(collector.position, limit)
        self._advance(status.confirmed or 0)
        if is_all and status.columns < len(self._slot.columns):
            raise ConnectorError(
                f"{what}: a column that {self._subject.declared.stream} declares was dropped",
                hint=f"define the stream without it, and {ANEW}",
            )
        return not is_all or (until is not None and self._seen < until)

    def _status(self) -> Status:
        """Ask where the server and the slot are; raises where they are not as this query has left them."""
        subject, slot = self._subject, self._slot
        found = self._server.status(subject.what, slot.name, slot.table, slot.columns.values())
        if not found.has_table:
            raise ConnectorError(f"{subject.what}: the table was dropped", hint=ANEW)
        if not found.has_slot:
            raise ConnectorError(
                f"{subject.what}: the server has no slot {slot.name}, which this query reads",
                detail="it was dropped, or the server is another one than before, such as a standby that took over",
                hint=ANEW,
            )
        if found.wal_status == "lost" or found.confirmed is None or found.restart is None:
            raise ConnectorError(
                f"{subject.what}: the server has removed the log that slot {slot.name} needs",
                detail="the query was stopped, or too slow, for longer than max_slot_wal_keep_size allows",
                hint=f"drop the slot (SELECT pg_drop_replication_slot('{slot.name}')), and {ANEW}",
            )
        if found.confirmed > self._collector.position:
            raise CheckpointError(
                f"{subject.what}: slot {slot.name} was advanced to {lsn_text(found.confirmed)}, and this checkpoint "
                f"has read only to {lsn_text(self._collector.position)}",
                detail="another copy of the checkpoint was used, or somebody has read the slot",
                hint=ANEW,
            )
        self._warn_of_wal(found)
        return found

    def _warn_of_wal(self, status: Status) -> None:
        held = status.written - (status.restart or status.written)
        if held >= self._warned or status.wal_status == "unreserved":
            self._warned = 2 * max(held, self._warned)
            soon = status.wal_status == "unreserved"
            self.warnings.append(
                f"slot {self._slot.name} of {self._subject.declared.stream} holds {size_text(held)} of the server's log"
                + (", which is about to be removed (max_slot_wal_keep_size)" if soon else "")
            )

    def _advance(self, confirmed: int) -> None:
        """Advance the slot as far as pieces and notes say that the log was read: a later run must know of it."""
        position = max(self._known[-1].position, self._noted)
        read = self._collector.position
        if read - max(position, confirmed) >= _WORTH_ADVANCING:
            self._pieces.note_position(read)
            self._noted = position = read
        if position > confirmed:
            self._server.advance(self._subject.what, self._slot.name, position)
