"""Rows as Parquet, through pyarrow, which is an extra: only who asks for this format has it loaded."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet

from durable_crawler.results.export import Row, Table

_GROUP = 20_000  # rows that are in memory at once, some 20 MB of pages

_TYPES = {
    "string": pa.string(),
    "integer": pa.int64(),
    "boolean": pa.bool_(),
    "time": pa.timestamp("ms", tz="UTC"),
    "list": pa.list_(pa.string()),
}


def write(table: Table, connection: sqlite3.Connection, sink: BinaryIO) -> None:
    """The table as one file with an explicit schema, a row group at a time."""
    schema = pa.schema(
        [pa.field(column.name, _TYPES[column.kind], nullable=column.optional) for column in table.columns]
    )
    rows = table.rows(connection)
    with pyarrow.parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        for group in _groups(rows):
            columns = zip(*group, strict=True)
            arrays = [pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def _groups(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while group := list(islice(rows, _GROUP)):
        yield group
