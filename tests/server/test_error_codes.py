"""docs/protocol.md lists every code that the server refuses with, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text("utf-8")
ERRORS = {"RequestError", "BadRequestError"}
UNSAID = "null"  # Where the code says nothing beyond the status.


def table_below(words: str) -> list[list[str]]:
    """Cells of the first table below the line that ends with `words`."""
    below = re.split(rf"^.*{re.escape(words)}$", PAGE, maxsplit=1, flags=re.MULTILINE)[1]
    table = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert table is not None, words
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[0].splitlines()[2:]]


def codes(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def of_http() -> set[tuple[int, str]]:
    """Each status and code of HTTP's table."""
    return {
        (int(status), code)
        for row in table_below("### Errors")
        for status in row[0].split(", ")
        for code in codes(row[1])
    }


def of_sockets() -> set[str]:
    return {code for row in table_below("The codes of a socket alone:") for code in codes(row[0])}


def raised() -> Iterator[tuple[str, int | None, str]]:
    """Where a refusal is made, its status (None: known only when it runs) and its code."""
    for file in sorted((ROOT / "server").glob("*.py")):
        for call in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(call, ast.Call):
                continue
            if not any(isinstance(n, ast.Name) and n.id in ERRORS for n in ast.walk(call.func)):
                continue
            given = {word.arg: word.value for word in call.keywords}
            code = given.get("code", ast.Constant(None))
            is_plain = isinstance(code, ast.Constant)
            usual = 500 if isinstance(call.func, ast.Attribute) else 400  # RequestError.of_server
            status = given.get("status", ast.Constant(usual if is_plain else None))
            known = status.value if isinstance(status, ast.Constant) else None
            assert known is None or isinstance(known, int)
            for node in ast.walk(code):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield f"{file.name}:{call.lineno}", known, node.value


def test_every_code_is_in_a_table_with_its_status_and_the_tables_have_no_other() -> None:
    http, sockets = of_http(), of_sockets()
    made = list(raised())
    assert len(made) > 30
    for place, status, code in made:
        if status is not None and code not in sockets:
            assert (status, code) in http, place
    in_tables = {code for _, code in http} | sockets
    assert {code for _, _, code in made} == in_tables - {UNSAID}
    assert {status for status, code in http if code == UNSAID} == {405, 500}
