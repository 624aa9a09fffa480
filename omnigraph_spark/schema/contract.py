"""The three schema files of a graph and whether they agree.

``_schema.pg`` is what people wrote, ``_schema.ir.json`` what it compiles to, ``__schema_state.json`` the
hash of that. Every read and write relies on all three saying the same. Pure functions over texts: callers
do the I/O.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph_spark.errors import FormatError, SchemaError
from omnigraph_spark.schema.catalog import Catalog
from omnigraph_spark.schema.compile import compile_schema
from omnigraph_spark.schema.declarations import RangeConstraint
from omnigraph_spark.schema.ir import SchemaIR, ir_text, schema_ir_hash
from omnigraph_spark.schema.ir_reader import parse_ir
from omnigraph_spark.schema.parse import parse_schema

PG_FILE = "_schema.pg"
IR_FILE = "_schema.ir.json"
STATE_FILE = "__schema_state.json"
CONTRACT_FILES = (PG_FILE, IR_FILE, STATE_FILE)

STATE_FORMAT_VERSION = 1
SCHEMA_IDENTITY_VERSION = 1

_RESTORE = f"Restore {PG_FILE}, {IR_FILE} and {STATE_FILE} from one backup, or repair them with OmniGraph."


@dataclass(frozen=True, slots=True)
class ContractFiles:
    """The contents of the three files."""

    pg: str
    ir: str
    state: str

    def texts(self) -> tuple[str, str, str]:
        """Return the contents in the order of CONTRACT_FILES."""
        return (self.pg, self.ir, self.state)


@dataclass(frozen=True, slots=True)
class Contract:
    """A checked schema: its text, compiled form, hash and catalog.

    ``derived`` says that the compiled form came from the text because the graph has no JSON files yet.
    """

    pg: str
    ir: SchemaIR
    schema_ir_hash: str
    catalog: Catalog
    derived: bool = False


def render_contract(pg: str) -> ContractFiles:
    """Return the three files for a schema text, which is kept as it is; raise SchemaError on invalid text."""
    ir = compile_schema(parse_schema(pg))
    _refuse_unsure_floats(ir)
    state = {
        "format_version": STATE_FORMAT_VERSION,
        "schema_ir_hash": schema_ir_hash(ir),
        "schema_identity_version": SCHEMA_IDENTITY_VERSION,
    }
    return ContractFiles(pg, ir_text(ir), json.dumps(state, indent=2))


def check_contract(
    pg: str | None,
    ir: str | None,
    state: str | None,
    *,
    other_branches: bool,
) -> Contract:
    """Check the three files against each other; None stands for a file that is not there.

    Guarantees that the returned catalog, the stored text, the stored compiled form and the stored hash
    are one schema. Raises FormatError that names the file at fault.
    """
    if pg is None:
        raise FormatError(f"the graph has no {PG_FILE}", hint=_RESTORE)
    if ir is None and state is None:
        if other_branches:
            message = f"torn contract: {IR_FILE} and {STATE_FILE} are missing in a graph with branches besides main"
            raise FormatError(message, hint=_RESTORE)
        return _contract(pg, ir=_compiled(pg), derived=True)
    if ir is None or state is None:
        missing, present = (IR_FILE, STATE_FILE) if ir is None else (STATE_FILE, IR_FILE)
        raise FormatError(f"torn contract: {missing} is missing while {present} exists", hint=_RESTORE)
    stored_hash = _stored_hash(state)
    stored = parse_ir(ir)
    _refuse_disagreement(pg=schema_ir_hash(_compiled(pg)), ir=schema_ir_hash(stored), state=stored_hash)
    return _contract(pg, ir=stored, derived=False)


def _contract(pg: str, *, ir: SchemaIR, derived: bool) -> Contract:
    return Contract(pg, ir, schema_ir_hash(ir), Catalog.from_ir(ir), derived)


def _compiled(pg: str) -> SchemaIR:
    try:
        return compile_schema(parse_schema(pg))
    except SchemaError as error:
        raise FormatError(f"the stored {PG_FILE} is not a valid schema: {error.message}", hint=_RESTORE) from error


def _stored_hash(state: str) -> str:
    try:
        document = json.loads(state)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{STATE_FILE} is not JSON: {error}", hint=_RESTORE) from None
    if not isinstance(document, Mapping):
        raise FormatError(f"{STATE_FILE} is not a JSON object", hint=_RESTORE)
    version = document.get("format_version")
    if version != STATE_FORMAT_VERSION or isinstance(version, bool):
        raise FormatError(
            f"{STATE_FILE} has format_version {version!r}; this version reads {STATE_FORMAT_VERSION}",
            hint="Open the graph with a release that supports its format.",
        )
    stored = document.get("schema_ir_hash")
    if not isinstance(stored, str):
        raise FormatError(f"{STATE_FILE} has no schema_ir_hash", hint=_RESTORE)
    return stored


def _refuse_disagreement(*, pg: str, ir: str, state: str) -> None:
    if pg == ir == state:
        return
    if ir == state:
        fault = f"{PG_FILE} was changed: it no longer compiles to what {IR_FILE} and {STATE_FILE} describe"
    elif pg == state:
        fault = f"{IR_FILE} disagrees with {PG_FILE} and {STATE_FILE}"
    elif pg == ir:
        fault = f"{STATE_FILE} disagrees with {PG_FILE} and {IR_FILE}"
    else:
        fault = f"{PG_FILE}, {IR_FILE} and {STATE_FILE} describe three different schemas"
    raise FormatError(f"{fault} (hashes: {PG_FILE} {pg}, {IR_FILE} {ir}, {STATE_FILE} {state})", hint=_RESTORE)


def _refuse_unsure_floats(ir: SchemaIR) -> None:
    # Outside this range the exact spelling other implementations hash is not established; a graph written
    # with the wrong one could not be opened by them. Reading such a schema is harmless, so only writing
    # refuses.
    for node in ir.nodes:
        for constraint in node.constraints:
            if not isinstance(constraint, RangeConstraint):
                continue
            for bound in (constraint.minimum, constraint.maximum):
                if isinstance(bound, float) and bound != 0 and not 1e-4 <= abs(bound) < 1e16:
                    raise SchemaError(
                        f"the bound {bound!r} of @range on {node.name}.{constraint.property} is outside the "
                        "magnitudes whose spelling is portable (0.0001 to 10000000000000000)",
                        rule="range-bound-portable",
                        line=constraint.position.line,
                        column=constraint.position.column,
                    )
