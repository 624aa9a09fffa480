"""Records in OmniGraph's JSON format: what is read, what is refused, and that memory stays bounded."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph_spark.errors import OptionError, StorageError, StorageNotFoundError, ValidationError, Violation
from omnigraph_spark.write import jsonl
from omnigraph_spark.write.json_stream import JsonStream, Source, open_texts
from omnigraph_spark.write.jsonl import read_records
from tests.unit.write.jsonl_reading import CATALOG, only, read, refused, refused_one


def test_nodes_and_edges_become_batches_of_their_tables() -> None:
    """A node gives its properties; an edge gives src, dst and properties; both know their record numbers."""
    people, knows = read(
        [
            '{"type": "Person", "data": {"name": "a", "age": 1}}',
            '{"edge": "Knows", "from": "a", "to": "b", "data": {"since": "2024-01-31"}}',
            '{"type": "Person", "data": {"name": "b"}}',
        ]
    )
    assert people.table_key == "node:Person"
    assert people.rows.to_pydict() == {"age": [1, None], "name": ["a", "b"]}
    assert people.records == pa.array([1, 3])
    assert knows.table_key == "edge:Knows"
    assert knows.rows.schema.names == ["src", "dst", "since"]
    assert knows.records == range(2, 3)


PRETTY = json.dumps({"type": "Person", "data": {"name": "a\n{", "age": 1}}, indent=4)


@pytest.mark.parametrize("between", ["\n", "\r\n\t ", "", " "])
def test_any_whitespace_may_separate_records(between: str) -> None:
    """Pretty-printed records, records on one line and records without a gap are all the same."""
    (batch,) = read(f"{between}{PRETTY}{between}{PRETTY}{between}")
    assert batch.rows.to_pydict() == {"age": [1, 1], "name": ["a\n{", "a\n{"]}


def test_every_kind_of_source_gives_the_same_rows(tmp_path: Path) -> None:
    """A path, text, bytes and text handles, lines, and records in memory are read alike."""
    text = f"{PRETTY}\n{PRETTY}\n"
    path = tmp_path / "records.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    record = json.loads(PRETTY)
    files: list[Source] = [path, str(path), f"file://{path}", text, io.BytesIO(text.encode()), io.StringIO(text)]
    both: list[str | bytes] = [PRETTY.encode(), PRETTY]
    lines: list[Source] = [text.splitlines(), text.splitlines(keepends=True), iter(both), [record, PRETTY]]
    for source in files + lines:
        (batch,) = read(source)
        assert batch.rows.to_pydict() == {"age": [1, 1], "name": ["a\n{", "a\n{"]}


@pytest.mark.parametrize("source", ["\n", " \n\t", [], io.BytesIO(), io.StringIO("")])
def test_no_records_give_no_rows(source: Source) -> None:
    """An empty input is no error: there is nothing to write."""
    assert read(source) == []


@pytest.mark.parametrize("source", [{"type": "Person"}, b"{}", 5, [5], "s3://bucket/key", "gs://x", ""])
def test_what_is_no_source_is_an_option_error(source: Any) -> None:
    """A single record, bytes, numbers and remote paths are refused by name."""
    with pytest.raises(OptionError):
        read(source)


def test_a_file_that_cannot_be_read_is_a_storage_error(tmp_path: Path) -> None:
    """A missing file and a directory are typed errors."""
    with pytest.raises(StorageNotFoundError):
        read(tmp_path / "none.jsonl")
    with pytest.raises(StorageError):
        read(tmp_path)


@pytest.mark.parametrize("chunk", range(1, 12))
def test_a_value_may_be_cut_anywhere(chunk: int) -> None:
    """Where the pieces of the text begin and end never changes the values, whatever token they cut."""
    text = '{"a": [1.5e-3, -12, true, null, "\\ud83d\\ude00é\\n"],\n "b": {}} 123  "x" [ ]{"c":false}  77'
    pieces = iter([text[at : at + chunk] for at in range(0, len(text), chunk)])
    values = [value for value, _ in JsonStream(pieces, chunk=chunk)]
    assert values == [{"a": [0.0015, -12, True, None, "😀é\n"], "b": {}}, 123, "x", [], {"c": False}, 77]


def test_ids_are_there_where_a_record_gives_one() -> None:
    """One record with an id makes the column; the others, and a null, have none. Without any there is no column."""
    rows = only({"type": "Plain", "data": {"id": "x"}}, {"type": "Plain"}, {"type": "Plain", "data": {"id": None}})
    assert rows.to_pydict() == {"id": ["x", None, None]}
    assert only({"type": "Plain", "data": {"note": "n"}}).schema.names == ["note"]
    edge = {"edge": "Knows", "from": "a", "to": "b"}
    assert only({**edge, "data": {"id": "e"}}, edge).to_pydict() == {
        "id": ["e", None],
        "src": ["a", "a"],
        "dst": ["b", "b"],
    }


def test_records_without_data_keep_their_row() -> None:
    """A type without required properties may have rows that name nothing at all."""
    (batch,) = read('{"type": "Plain"}\n{"type": "Plain", "data": {}}\n')
    assert batch.rows.to_pydict() == {"id": [None, None]}


def test_a_key_need_not_be_text() -> None:
    """A Date key is read like any Date."""
    assert only({"type": "Day", "data": {"day": 19753}}).column("day").cast(pa.int32()).to_pylist() == [19753]


def test_edge_types_may_differ_in_case_and_node_types_may_not() -> None:
    """An edge type is found by its folded name when no exact one is there; a node type is not."""
    (batch,) = read('{"edge": "KNOWS", "from": "a", "to": "b"}{"edge": "Knows", "from": "a", "to": "b"}')
    assert batch.table_key == "edge:Knows"
    assert batch.rows.num_rows == 2
    assert "did you mean 'Person'" in refused_one('{"type": "person"}').message


BAD_RECORDS = [
    ("5", "type", "the record is a number"),
    ("[]", "type", "the record is a list"),
    ("null", "type", "the record is null"),
    ("NaN", "type", "is not a JSON number"),
    ("{}", "record-kind", "neither"),
    ('{"type": "Plain", "edge": "Knows", "from": "a", "to": "b"}', "record-kind", "both"),
    ('{"type": 5}', "type", "a type name is text"),
    ('{"type": null}', "type", "a type name is text"),
    ('{"type": "Persom", "data": {"name": "a"}}', "unknown-type", "did you mean 'Person'"),
    ('{"edge": "Knowz", "from": "a", "to": "b"}', "unknown-type", "did you mean 'Knows'"),
    ('{"type": "Plain", "extra": 1}', "unknown-key", "unknown key 'extra'"),
    ('{"type": "Plain", "from": "a"}', "unknown-key", "unknown key 'from'"),
    ('{"type": "Plain", "data": {"nota": "x"}}', "unknown-column", "did you mean 'note'"),
    ('{"type": "Plain", "data": null}', "type", "data is null"),
    ('{"type": "Plain", "data": []}', "type", "data is a list"),
    ('{"type": "Plain", "data": {"id": 5}}', "type", "5 is a number"),
    ('{"type": "Plain", "data": {"note": "a", "note": "b"}}', "duplicate-column", "'note' more than once"),
    ('{"type": "Plain", "type": "Person"}', "duplicate-column", "'type' more than once"),
    ('{"type": "Person", "data": {"age": 1}}', "required", "Person.name: a value is required"),
    ('{"type": "Person", "data": {"name": null}}', "required", "Person.name: a value is required"),
    ('{"edge": "Knows", "to": "b"}', "required", "Knows.from: a value is required"),
    ('{"edge": "Knows", "from": "a", "to": null}', "required", "Knows.to: a value is required"),
    ('{"edge": "Knows", "from": "a", "to": 5}', "type", "Knows.to: 5 is a number"),
    ('{"type": "Plain", "data": {"\\ud800": 1}}', "unknown-column", "unknown property"),
    ('{"type": "\\ud800"}', "unknown-type", "no node type"),
]


@pytest.mark.parametrize(("text", "rule", "said"), BAD_RECORDS)
def test_a_bad_record_is_named(text: str, rule: str, said: str) -> None:
    """Every broken rule of the record format gives its rule, the record number and what is wrong."""
    violation = refused_one(f'{{"type": "Plain"}}\n{text}\n{{"type": "Plain"}}\n')
    assert violation.rule == rule
    assert said in violation.message
    assert violation.message.startswith("record 2")


MALFORMED = [
    ('{"type": "Plain"} \n {"type": ]}', "record 2", "line 2, column 11"),
    ('{"type": "Plain"}\n{"type": "Pl\nain"}', "record 2", "line 2, column 13"),
    ('{"type": "Plain"', "record 1", "line 1, column 17"),
    ('{"type": "Plain"}\n# comment\n', "record 2", "line 2, column 1"),
    ('{"type": "Plain",}', "record 1", "line 1"),
    ('{"type": "Plain"}\n}', "record 2", "line 2, column 1"),
    ("{'type': 'Plain'}", "record 1", "line 1, column 2"),
    ("[" * 100_000 + "\n", "record 1", "nested too deeply"),
]


@pytest.mark.parametrize(("text", "record", "place"), MALFORMED)
def test_malformed_json_is_named_with_its_place(text: str, record: str, place: str) -> None:
    """Text that is not JSON gives the record number, the line and the column."""
    violation = refused_one(text)
    assert violation.rule == "json"
    assert violation.message.startswith(record)
    assert place in violation.message


def test_malformed_json_does_not_hide_earlier_faults() -> None:
    """What was read before the malformed text is still judged."""
    rules = [violation.rule for violation in refused('{"type": "Person", "data": {"age": 1}}\n{"type"')]
    assert rules == ["json", "required"]


def test_malformed_json_is_found_without_reading_on() -> None:
    """A broken record ends the reading where it is: the rest of the input is not read into memory."""
    taken: list[int] = []

    def lines() -> Iterator[str]:
        for number in range(1_000_000):
            taken.append(number)
            yield '{"type": "Plain", "data": {"note": "x"}}' if number != 10 else '{"type": "Plain" "data": {}}'

    assert refused_one(lines()).message.startswith("record 11")
    assert len(taken) < 200_000


@pytest.mark.parametrize("tail", [b'\n{"type": "\xff"}', b"\n\xff", b" \xc3"])
def test_bytes_that_are_not_text_are_named(tail: bytes) -> None:
    """Input that is not UTF-8 is malformed, after the records before it were read."""
    violation = refused_one(io.BytesIO(b'{"type": "Plain"}' + tail))
    assert violation.rule == "json"
    assert violation.message.startswith("record 2")
    assert "not UTF-8" in violation.message


def test_a_record_in_memory_that_json_cannot_say_is_named() -> None:
    """Objects and NaN in a dict are not guessed at."""
    for value in (object(), float("nan")):
        violation = refused_one([{"type": "Plain"}, {"type": "Plain", "data": {"note": value}}])
        assert "item 2 of the input cannot be written as JSON" in violation.message


def test_violations_of_the_whole_input_are_raised_together_and_sorted() -> None:
    """Faults in different batches and types come in one error; nothing is yielded after the first."""
    good, bad = '{"type": "Plain", "data": {"note": "x"}}', '{"type": "Plain", "data": {"note": 1}}'
    edge = '{"edge": "Knows", "from": "a"}'
    batches = read_records([good, good, bad, edge, good, good, bad], catalog=CATALOG, batch_rows=2)
    assert next(batches).records == range(1, 3)
    with pytest.raises(ValidationError) as caught:
        next(batches)
    assert caught.value.total == 3
    named = [violation.message.split(",")[0] for violation in caught.value.violations]
    assert named == ["record 4", "record 3", "record 7"]
    assert caught.value.violations == sorted(caught.value.violations, key=Violation.sort_key)


def test_a_hundred_violations_are_listed_and_one_more_ends_the_reading() -> None:
    """Exactly 100 are all listed; with more, the reading stops and the error says so."""
    assert len(refused(['{"type": "None"}'] * 100)) == 100

    def endless() -> Iterator[str]:
        while True:
            yield '{"type": "None"}'

    with pytest.raises(ValidationError, match="more than 100") as caught:
        read(endless())
    assert len(caught.value.violations) == 100
    assert caught.value.total == 101


def test_batches_have_at_most_the_wanted_rows() -> None:
    """Rows of each type are cut into batches, and no row is lost or moved."""
    lines = [
        json.dumps({"type": "Plain", "data": {"note": str(n)}} if n % 3 else {"type": "Day", "data": {"day": n}})
        for n in range(100)
    ]
    batches = read(lines, batch_rows=7)
    assert max(batch.rows.num_rows for batch in batches) == 7
    day_batches = [batch.rows for batch in batches if batch.table_key == "node:Day"]
    note_batches = [batch.rows for batch in batches if batch.table_key == "node:Plain"]
    days = [day for rows in day_batches for day in rows.column("day").cast(pa.int32()).to_pylist()]
    notes = [note for rows in note_batches for note in rows.column("note").to_pylist()]
    assert days == [n for n in range(100) if n % 3 == 0]
    assert notes == [str(n) for n in range(100) if n % 3]
    for batch in batches:
        assert len(batch.records) == batch.rows.num_rows


def test_a_batch_needs_at_least_one_row() -> None:
    """A batch size of zero is refused at once."""
    with pytest.raises(OptionError):
        read_records([], catalog=CATALOG, batch_rows=0)


def test_long_values_end_a_batch_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by characters as well as by rows."""
    monkeypatch.setattr(jsonl, "_BATCH_CHARACTERS", 1000)
    batches = read(['{"type": "Plain", "data": {"note": "%s"}}' % ("x" * 400)] * 9)
    assert [batch.rows.num_rows for batch in batches] == [3, 3, 3]


def test_a_large_file_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """200,000 records (30 MB) are read with a few batches of them in memory, not all."""
    path = tmp_path / "many.jsonl"
    with path.open("w") as out:
        for n in range(200_000):
            out.write(json.dumps({"type": "Person", "data": {"name": f"name-{n}", "age": n}}) + " " * 90 + "\n")
    size = path.stat().st_size
    rows = 0
    tracemalloc.start()
    try:
        for batch in read_records(path, catalog=CATALOG, batch_rows=4_096):
            assert batch.rows.num_rows <= 4_096
            assert batch.rows.column("age")[0].as_py() == rows
            rows += batch.rows.num_rows
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == 200_000
    assert peak < size // 2


def test_a_long_value_is_not_decoded_once_per_piece() -> None:
    """The work for one value of many lines grows with its length, not with its square."""
    decoded = 0

    class Counting(JsonStream):
        def _fill(self) -> None:
            nonlocal decoded
            super()._fill()
            decoded += len(self._text)

    lines = json.dumps({"a": list(range(200_000))}, indent=1).splitlines()
    length = sum(map(len, lines))
    ((value, _),) = Counting(open_texts(lines), chunk=64)
    assert isinstance(value, dict)
    assert decoded < 8 * length
