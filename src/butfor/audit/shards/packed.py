"""Tables and arrays of a shard as compressed bytes, which workers make and the program stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
from numpy.typing import NDArray

CODEC = "zstd"
BATCH = 2**15  # rows that are read together

Arrays = dict[str, NDArray[Any]]


@contextmanager
def reused_memory() -> Iterator[None]:
    """Let Arrow take memory from the C library, which reuses what threads have freed.

    Arrow's own allocator gives it back to the system, and asks for it again page by page.
    """
    usual = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(usual)


def pack_table(table: Any) -> Any:
    """Return an Arrow table as the bytes of an Arrow file."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=CODEC)
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table.combine_chunks(), max_chunksize=BATCH)
    return sink.getvalue()


def table_file(folder: Path, name: str, key: str) -> Path:
    """Return where a table of a part is stored."""
    return folder / f"{name}-{key}.arrow"


class PackedTable:
    """A stored table of which some columns are read, and only the rows that are asked for."""

    def __init__(
        self, folder: Path, name: str, key: str, wanted: Callable[[str], bool] | None = None
    ) -> None:
        mapped = pa.memory_map(str(table_file(folder, name, key)))
        # without threads of its own, each of which would keep memory
        options = pa.ipc.IpcReadOptions(use_threads=False)
        if wanted is not None:
            names = pa.ipc.open_file(mapped).schema.names
            options.included_fields = [n for n, column in enumerate(names) if wanted(column)]
        self._file = pa.ipc.open_file(mapped, options=options)

    def all(self) -> Any:
        """Return all rows."""
        return self._file.read_all()

    def rows(self, low: int, high: int) -> Any:
        """Return the rows low .. high - 1."""
        batches = range(low // BATCH, -(-high // BATCH))
        read = [self._file.get_batch(number) for number in batches]
        table = pa.Table.from_batches(read, self._file.schema)
        return table.slice(low - batches.start * BATCH, high - low)


def pack_arrays(arrays: Arrays) -> bytes:
    """Return arrays as the bytes of an .npz file, which shows if it was cut off."""
    plain, packed = BytesIO(), BytesIO()
    np.savez(plain, allow_pickle=False, **arrays)
    data = pa.compress(plain.getbuffer(), codec=CODEC, asbytes=True)
    np.savez(
        packed, allow_pickle=False, size=plain.tell(), data=np.frombuffer(data, dtype=np.uint8)
    )
    return packed.getvalue()


def unpack_arrays(path: Path) -> Arrays:
    """Read what `pack_arrays` returned from a file."""
    with np.load(path, allow_pickle=False) as file:
        data, size = file["data"].tobytes(), int(file["size"])
    plain = pa.decompress(data, decompressed_size=size, codec=CODEC, asbytes=True)
    with np.load(BytesIO(plain), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}
