"""Numbers for people are rounded; --json has them in full."""

import json

from elmore.cli.tables import print_table

ROWS = [{"before": 75.06871246936457, "after": 0.000123456, "words": 100003, "none": None}]


def test_numbers_are_rounded_for_people(capsys):
    print_table(ROWS, as_json=False)
    assert capsys.readouterr().out.splitlines()[1].split("\t") == [
        "75.07",
        "0.0001235",
        "100003",
        "-",
    ]
    print_table([{"perplexity": 12345.678}], as_json=False)
    assert capsys.readouterr().out.splitlines()[1] == "12346"


def test_a_row_is_one_line_whatever_its_cells_hold(capsys):
    print_table([{"word": "a\tb", "use": "c\nd\r\x85e f"}], as_json=False)
    assert capsys.readouterr().out == "word\tuse\na\\tb\tc\\nd\\r\\x85e f\n"


def test_json_has_every_digit(capsys):
    print_table(ROWS, as_json=True)
    assert json.loads(capsys.readouterr().out) == ROWS
