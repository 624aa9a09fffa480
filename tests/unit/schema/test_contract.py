"""The three schema files and their agreement."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from omnigraph_spark.errors import FormatError, SchemaError
from omnigraph_spark.schema.contract import (
    CONTRACT_FILES,
    IR_FILE,
    PG_FILE,
    STATE_FILE,
    check_contract,
    render_contract,
)

PEOPLE = (Path(__file__).parent / "golden" / "people.pg").read_text(encoding="utf-8")
PEOPLE_HASH = "sha256:e37013207fea258e1168975dae0d8a540c99e9f0aaa47da43171bed900a51a95"
OTHER = render_contract("node Other {}")


def test_file_names() -> None:
    """The names are those of the format, text first."""
    assert CONTRACT_FILES == ("_schema.pg", "_schema.ir.json", "__schema_state.json")


def test_rendering_keeps_the_text_and_adds_its_compiled_form() -> None:
    """The text stays byte for byte, whatever its line ends, and the state holds the hash."""
    text = PEOPLE.replace("\n", "\r\n") + "// é"
    files = render_contract(text)
    assert files.pg == text
    assert files.texts() == (files.pg, files.ir, files.state)
    assert json.loads(files.ir)["ir_version"] == 1
    assert files.state == (
        '{\n  "format_version": 1,\n  "schema_ir_hash": "' + PEOPLE_HASH + '",\n  "schema_identity_version": 1\n}'
    )


def test_rendering_refuses_invalid_text() -> None:
    """An invalid schema never reaches storage."""
    with pytest.raises(SchemaError):
        render_contract("node A { id: String }")


@pytest.mark.parametrize("bound", ["0.00001..", "0..10000000000000000.0", "..99999999999999999999"])
def test_rendering_refuses_floats_of_unsure_spelling(bound: str) -> None:
    """A bound whose portable spelling is unknown is refused when writing, and only then."""
    text = f"node A {{ p: F64 @range(p, {bound}) }}"
    with pytest.raises(SchemaError) as caught:
        render_contract(text)
    assert (caught.value.rule, caught.value.line, caught.value.column) == ("range-bound-portable", 1, 17)
    assert check_contract(text, None, None, other_branches=False).catalog.node("A").ranges
    assert render_contract("node A { p: F64 @range(p, 0.0..-0.0) }").ir


def test_three_agreeing_files_give_the_catalog() -> None:
    """What was rendered checks, with or without other branches."""
    for other_branches in (False, True):
        contract = check_contract(*render_contract(PEOPLE).texts(), other_branches=other_branches)
        assert contract.schema_ir_hash == PEOPLE_HASH
        assert contract.catalog.table_keys() == ("node:Company", "node:Person", "edge:Knows", "edge:WorksAt")
        assert contract.pg == PEOPLE
        assert not contract.derived


def test_layout_edits_of_the_text_are_harmless() -> None:
    """A comment, a blank or another order changes no hash."""
    files = render_contract(PEOPLE)
    assert check_contract(f"// more\n{PEOPLE}", files.ir, files.state, other_branches=True).pg.startswith("// more")


def test_json_files_may_be_absent_on_a_graph_with_main_only() -> None:
    """Both missing and no other branch: the compiled form is derived from the text."""
    contract = check_contract(PEOPLE, None, None, other_branches=False)
    assert contract.derived
    assert contract.schema_ir_hash == PEOPLE_HASH
    assert contract.catalog == check_contract(*render_contract(PEOPLE).texts(), other_branches=False).catalog


def test_json_files_may_not_be_absent_besides_other_branches() -> None:
    """Both missing with other branches is a torn contract."""
    with pytest.raises(FormatError, match=f"torn contract: {IR_FILE} and {STATE_FILE} are missing"):
        check_contract(PEOPLE, None, None, other_branches=True)


@pytest.mark.parametrize(("missing", "at"), [(IR_FILE, 1), (STATE_FILE, 2)])
def test_one_missing_json_file_is_a_torn_contract(missing: str, at: int) -> None:
    """The message names the missing file and the hint says what to do."""
    texts: list[str | None] = list(render_contract(PEOPLE).texts())
    texts[at] = None
    with pytest.raises(FormatError, match=f"torn contract: {missing} is missing") as caught:
        check_contract(texts[0], texts[1], texts[2], other_branches=False)
    assert "Restore" in caught.value.hint


def test_a_missing_text_is_refused() -> None:
    """Without the schema text there is no graph to open."""
    files = render_contract(PEOPLE)
    with pytest.raises(FormatError, match=f"no {PG_FILE}"):
        check_contract(None, files.ir, files.state, other_branches=False)


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (0, f"{PG_FILE} was changed"),
        (1, f"{IR_FILE} disagrees with {PG_FILE} and {STATE_FILE}"),
        (2, f"{STATE_FILE} disagrees with {PG_FILE} and {IR_FILE}"),
    ],
)
def test_the_file_that_disagrees_is_named(at: int, said: str) -> None:
    """One changed file is told from the two that agree."""
    texts = list(render_contract(PEOPLE).texts())
    texts[at] = OTHER.texts()[at]
    with pytest.raises(FormatError, match=said):
        check_contract(texts[0], texts[1], texts[2], other_branches=False)


def test_three_different_schemas_are_refused() -> None:
    """When no two files agree all three are named."""
    third = render_contract("node Third {}")
    with pytest.raises(FormatError, match="three different schemas"):
        check_contract(PEOPLE, OTHER.ir, third.state, other_branches=False)


def test_an_invalid_stored_text_is_a_format_error() -> None:
    """The place of the error survives."""
    files = render_contract(PEOPLE)
    with pytest.raises(FormatError, match=r"_schema.pg is not a valid schema: line 1, column 6"):
        check_contract("node bad", files.ir, files.state, other_branches=False)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a JSON object"),
        ('{"schema_ir_hash": "x"}', "format_version None"),
        ('{"format_version": 2}', "format_version 2"),
        ('{"format_version": true, "schema_ir_hash": "x"}', "format_version True"),
        ('{"format_version": 1}', "no schema_ir_hash"),
        ('{"format_version": 1, "schema_ir_hash": 5}', "no schema_ir_hash"),
    ],
)
def test_unreadable_or_newer_state_is_refused(state: str, said: str) -> None:
    """Only a state of format version 1 with a hash is read."""
    files = render_contract(PEOPLE)
    with pytest.raises(FormatError, match=said):
        check_contract(files.pg, files.ir, state, other_branches=False)


def test_a_newer_compiled_form_is_refused_before_its_hash_is_compared() -> None:
    """An unsupported version is reported as such, not as a disagreement."""
    files = render_contract(PEOPLE)
    with pytest.raises(FormatError, match="ir_version 2"):
        check_contract(files.pg, '{"ir_version": 2}', files.state, other_branches=False)


def test_the_identity_version_and_unknown_state_keys_are_not_checked() -> None:
    """Only the format version and the hash count."""
    files = render_contract(PEOPLE)
    state = json.dumps({"format_version": 1, "schema_ir_hash": PEOPLE_HASH, "later": 1})
    assert check_contract(files.pg, files.ir, state, other_branches=False).catalog


def test_a_contract_survives_pickling() -> None:
    """Contracts travel with plans."""
    contract = check_contract(*render_contract(PEOPLE).texts(), other_branches=False)
    assert pickle.loads(pickle.dumps(contract)) == contract
