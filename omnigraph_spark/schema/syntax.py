"""Schema text to syntax trees.

Loads the grammar once per process and turns every complaint of the parser into a SchemaError that says
what was found, where, and what could have stood there.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from lark import Lark, Token, Tree
from lark.exceptions import LarkError, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from omnigraph_spark.errors import SchemaError

# Every alternative starts differently and can end in only one way, so a failed match never goes back to try
# another split: text full of comment marks costs linear time.
_GAP = r"(?:[ \t\r\n]|\/\/[^\n]*(?:\n|\Z)|\/\*[^*]*\*+(?:[^\/*][^*]*\*+)*\/)*"

_SPELLED = {
    "$END": "the end of the schema",
    "AT": "an annotation",
    "BASE": "a type",
    "CARD_AT": "@card(...)",
    "CONSTRAINT_AT": "a constraint",
    "CONSTRAINT_NAME": "a constraint name",
    "ENUM_VALUE": "an enum value",
    "FALSE": "false",
    "FLOAT": "a number",
    "IDENT": "a lower-case name",
    "NULLABLE": "'?'",
    "SIGNED": "a number",
    "STRING": "a string",
    "TRUE": "true",
    "TYPE_NAME": "a type name",
    "UINT": "a number",
    "_ARROW": "'->'",
    "_COLON": "':'",
    "_COMMA": "','",
    "_DOTS": "'..'",
    "_EDGE": "edge",
    "_ENUM": "enum",
    "_EQUAL": "'='",
    "_IMPLEMENTS": "implements",
    "_INTERFACE": "interface",
    "_LBRACE": "'{'",
    "_LPAR": "'('",
    "_LSQUARE": "'['",
    "_NODE": "node",
    "_RBRACE": "'}'",
    "_RPAR": "')'",
    "_RSQUARE": "']'",
    "_VECTOR": "Vector",
}


def parse_tree(text: str) -> Tree[Token]:
    """Return the syntax tree of a schema text, or raise SchemaError where it stops being well formed."""
    _refuse_unencodable(text)
    try:
        return _parser().parse(text)
    except UnexpectedInput as unexpected:
        raise _syntax_error(unexpected, text=text) from None
    except LarkError as error:
        raise SchemaError(f"the schema cannot be parsed: {error}", rule="syntax", line=1, column=1) from None


@cache
def _parser() -> Lark:
    grammar = files("omnigraph_spark.schema").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar.replace("<gap>", _GAP), parser="lalr", lexer="contextual")


def _refuse_unencodable(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        line, column = _place(text, at=error.start)
        message = "the schema holds half of a surrogate pair and cannot be stored as UTF-8"
        raise SchemaError(message, rule="encoding", line=line, column=column) from None


def _syntax_error(unexpected: UnexpectedInput, *, text: str) -> SchemaError:
    line, column = unexpected.line, unexpected.column
    wanted: set[str] = set()
    found = "the schema ends too early"
    if isinstance(unexpected, UnexpectedCharacters):
        place = unexpected.pos_in_stream or 0
        wanted, found = set(unexpected.allowed or ()), f"unexpected {text[place : place + 1]!r}"
    elif isinstance(unexpected, UnexpectedToken):
        wanted = set(unexpected.accepts or unexpected.expected)
        if unexpected.token.type == "$END":
            line, column = _place(text, at=len(text))
        else:
            found = f"unexpected {str(unexpected.token)!r}"
    expected = ", ".join(sorted({_SPELLED.get(name, name) for name in wanted}))
    tail = f"; expected one of: {expected}" if expected else ""
    return SchemaError(f"{found}{tail}", rule="syntax", line=line, column=column)


def _place(text: str, *, at: int) -> tuple[int, int]:
    before = text[:at]
    return before.count("\n") + 1, at - before.rfind("\n")
