"""Every statement about sampling names tests, and every test that is named exists and runs."""

import ast
import pathlib
import re

import pytest

from statements import SECTIONS

HERE = pathlib.Path(__file__).resolve().parent


def names_in(path):
    """Names that a runner would run: Python functions, cmocka's lists."""
    text = path.read_text()
    if path.suffix == ".py":
        return {n.name for n in ast.parse(text).body
                if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")}
    return set(re.findall(r"cmocka_unit_test\w*\(\s*(\w+)", text))


@pytest.mark.parametrize("section", SECTIONS)
def test_every_statement_has_its_tests(section):
    for statement, named in SECTIONS[section]:
        assert named, statement
        for test in named:
            file, _, name = test.partition("::")
            path = HERE / file if "/" not in file else HERE.parent / file
            assert name in names_in(path), f"{statement}: no {test}"
