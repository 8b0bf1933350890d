"""The memory of an audit does not grow with the number of shards, at the size of real ones."""

from tests.shard_logs import peaks_of_memory, simulate_patients


def test_memory_does_not_grow_with_the_number_of_shards(tmp_path):
    few, many, held = peaks_of_memory(simulate_patients(), 6, 24, tmp_path)
    assert many - few < held / 4, (few, many)
