"""JSON from outside: whatever is wrong with it is one kind of error."""

import pytest

from elmore import strict_json
from elmore.errors import ConfigError, DataError


@pytest.mark.parametrize(
    "text",
    ["", "{", "[" * 100_000, "nought", '"\x00', "9" * 5000, b"\xff\xfe\xfd", b'"\xc3"', "1 2"],
    ids=lambda text: repr(text)[:12],
)
def test_text_that_is_not_json_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        strict_json.loads(text)
    with pytest.raises(DataError, match=r"^here: not readable as JSON"):
        strict_json.parse(text, "here")


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_nesting_is_bounded_exactly(opening, closing):
    def nested(depth: int) -> str:
        return opening * depth + "1" + closing * depth

    strict_json.loads(nested(strict_json.MAX_DEPTH))
    for text in (nested(strict_json.MAX_DEPTH + 1), nested(strict_json.MAX_DEPTH + 1).encode()):
        with pytest.raises(ValueError, match="nested deeper than 64 levels"):
            strict_json.loads(text)


def test_breadth_is_no_depth():
    text = "[" + ",".join(["[[]]"] * 1000) + "]"
    assert len(strict_json.loads(text)) == 1000


def test_the_family_is_the_callers():
    with pytest.raises(ConfigError, match=r"^there"):
        strict_json.parse("{", "there", error=ConfigError)


def test_a_lone_surrogate_alone_is_escaped_in_a_file():
    value = {"naïve 日本": ["caf\udce9", "\ud800"]}
    encoded = strict_json.encode(value, indent=1)
    assert encoded.decode() == '{\n "naïve 日本": [\n  "caf\\udce9",\n  "\\ud800"\n ]\n}\n'
    assert strict_json.loads(encoded) == value
