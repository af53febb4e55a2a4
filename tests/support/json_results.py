"""What a sink of JSON files holds."""

from __future__ import annotations

import json
from collections import Counter

from pyarrow.fs import FileSelector, FileSystem


def json_results(system: FileSystem, folder: str) -> Counter[tuple[object, ...]]:
    """All rows in the folder, or the sum of its changes; none if it does not exist yet."""
    found: Counter[tuple[object, ...]] = Counter()
    for file in system.get_file_info(FileSelector(folder, allow_not_found=True)):
        if file.extension == "json":
            with system.open_input_stream(file.path) as stream:
                for line in stream.read().decode().splitlines():
                    row = json.loads(line)
                    weight = row.pop("_tp_delta", 1)
                    found[tuple(row.values())] += weight
    return Counter({row: count for row, count in found.items() if count})
