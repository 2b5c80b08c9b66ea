from dataclasses import dataclass, field
from typing import Literal

import pytest

from elmore import config
from elmore.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Inner:
    width: int = 3
    clip: float | None = 3.0

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ConfigError(f"width must be at least 1, found {self.width}")


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    inner: Inner | None = field(default_factory=Inner)
    kind: Literal["a", "b"] = "a"
    pairs: tuple[tuple[int, int], ...] = ()
    on: bool = False


def build(**data) -> Outer:
    return config.build(Outer, {"name": "x"} | data, "recipe.toml")


def test_missing_keys_have_their_default():
    assert build() == Outer(name="x")


def test_sections_lists_and_numbers_become_what_the_fields_say():
    made = build(inner={"clip": 2}, pairs=[[1, 2], [3, 4]], kind="b")
    assert made == Outer(name="x", inner=Inner(clip=2.0), pairs=((1, 2), (3, 4)), kind="b")
    assert isinstance(made.inner.clip, float)


def test_none_is_read_from_null_or_the_string_none():
    assert build(inner={"clip": "none"}).inner.clip is None
    assert build(inner=None).inner is None


def test_plain_data_comes_back_the_same():
    made = build(inner={"clip": None}, pairs=[[1, 2]])
    assert config.build(Outer, config.as_dict(made), "again") == made


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"inner": {"widht": 1}},
            r"recipe.toml: inner: unknown key 'widht'; did you mean 'width'\?",
        ),
        ({"zzz": 1}, "unknown key 'zzz'; known keys: name, inner, kind, pairs, on"),
        ({"inner": {"width": "wide"}}, "recipe.toml: inner: width: expected int, found 'wide'"),
        ({"inner": {"width": True}}, "width: expected int, found True"),
        ({"on": 1}, "on: expected bool, found 1"),
        ({"kind": "c"}, "kind: expected one of 'a', 'b', found 'c'"),
        ({"pairs": 3}, "pairs: expected list, found 3"),
        ({"pairs": [[1]]}, r"pairs\[0\]: expected 2 items, found \[1\]"),
        ({"inner": 7}, "inner: expected a section of keys, found 7"),
        ({"inner": {"width": 0}}, "recipe.toml: inner: width must be at least 1, found 0"),
    ],
)
def test_an_invalid_value_is_named_with_its_location(data, message):
    with pytest.raises(ConfigError, match=message):
        build(**data)


def test_a_missing_key_is_named():
    with pytest.raises(ConfigError, match=r"x.toml: missing key 'name'"):
        config.build(Outer, {}, "x.toml")


def test_an_override_wins_over_the_file(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text('name = "x"\n[inner]\nwidth = 5\n')
    made = config.read_recipe(
        Outer, path, ["inner.width=7", "inner.clip=none", "kind=b", "on=true"]
    )
    assert made == Outer(name="x", inner=Inner(width=7, clip=None), kind="b", on=True)


def test_an_override_may_open_a_section():
    assert config.apply_overrides({}, ["inner.width=7"]) == {"inner": {"width": 7}}


@pytest.mark.parametrize("assignment", ["inner.width", "=3", "inner.=3"])
def test_an_override_of_another_form_is_refused(assignment):
    with pytest.raises(ConfigError, match="not of the form"):
        config.apply_overrides({}, [assignment])


def test_a_line_break_in_an_override_does_not_hide_a_second_one():
    with pytest.raises(ConfigError, match="more than one setting; pass each on its own"):
        config.apply_overrides({}, ["train.lr=1e-3\ntrain.steps=2"])
    assert config.apply_overrides({}, ["a.b=[1,\n2]"]) == {"a": {"b": [1, 2]}}


def test_an_override_into_a_value_is_refused():
    with pytest.raises(ConfigError, match="'name' is a value, not a section"):
        config.apply_overrides({"name": "x"}, ["name.part=3"])


def test_an_override_does_not_touch_what_it_was_given():
    table = {"inner": {"width": 1}}
    config.apply_overrides(table, ["inner.width=2"])
    assert table == {"inner": {"width": 1}}


def test_keys_of_earlier_versions_have_their_present_names():
    table = {"train": {"rate": 0.1, "steps": 3}, "stream": {"steps": 5}, "other": {"rate": 1}}
    assert config.rename_old_keys(table, "here") == {
        "train": {"lr": 0.1, "steps": 3},
        "stream": {"unroll_steps": 5},
        "other": {"rate": 1},
    }


def test_values_of_earlier_versions_get_their_present_names():
    earlier = {"data": {"unbalanced": "drop"}, "elmo": {"where": "both"}}
    renamed = {"data": {"unbalanced": "skip"}, "elmo": {"insert_at": "both"}}
    assert config.rename_old_keys(earlier, "here") == renamed
    assert config.rename_old_keys(renamed, "here") == renamed


def test_a_key_under_its_old_and_its_new_name_is_refused():
    table = {"train": {"rate": 0.1, "lr": 0.2}}
    with pytest.raises(ConfigError, match="here: train: 'rate' is the old name of 'lr'; keep one"):
        config.rename_old_keys(table, "here")


def test_a_file_that_is_not_toml_is_named(tmp_path):
    path = tmp_path / "recipe.toml"
    with pytest.raises(ConfigError, match=r"recipe\.toml: no such recipe"):
        config.read_recipe(Outer, path)
    path.write_text("name =")
    with pytest.raises(ConfigError, match=r"recipe\.toml: not a readable TOML file"):
        config.read_recipe(Outer, path)
