import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from elmore import __version__, cli
from tests.support.cli_runner import run_elmore
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm


@pytest.fixture
def files(tmp_path, rng):
    settings = bilm_options()
    return [str(path) for path in write_bilm(tmp_path, settings, bilm_weights(settings, rng))]


def python(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def commands(
    group: Any = None, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command of the command line, groups included, with the words that call it."""
    group = group or cli._root()
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        yield (*words, name), command
        if hasattr(command, "list_commands"):
            yield from commands(command, (*words, name))


def as_shown(text: str) -> str:
    """Return a text without spaces, frames and the backslash that keeps `[` from being markup."""
    return re.sub(r"[\s│]", "", text.replace(r"\[", "["))


@pytest.mark.parametrize("words", [words for words, _ in commands()], ids=" ".join)
def test_help_shows_every_word_of_its_texts(words, monkeypatch):
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 1000)
    command = dict(commands())[words]
    shown = as_shown(run_elmore(*words, "--help").out)
    assert as_shown(command.help) in shown
    for option in command.params:
        assert as_shown(option.help or "") in shown, option.name


def test_help_loads_nothing_that_takes_its_time():
    code = (
        "import sys, elmore.cli\n"
        f"for words in [[], *([name] for name in {list(cli.COMMANDS)})]:\n"
        "    sys.argv = ['elmore', *words, '--help']\n"
        "    print('asked for', *words)\n"
        "    try:\n        elmore.cli.main()\n"
        "    except SystemExit as stop:\n        assert not stop.code\n"
        "    heavy = {'torch', 'numpy', 'h5py', 'pyarrow', 'fastapi'} & set(sys.modules)\n"
        "    assert not heavy, (words, heavy)"
    )
    _, own, *others = re.split("^asked for ?", python(code).stdout, flags=re.MULTILINE)
    assert all(name in own for name in cli.COMMANDS)
    for name, shown in zip(cli.COMMANDS, others, strict=True):
        assert f"elmore {name}" in shown


def test_importing_elmore_loads_no_torch_and_its_names_are_all_there():
    python("import sys, elmore; assert 'torch' not in sys.modules and 'numpy' not in sys.modules")
    python("import elmore; [getattr(elmore, name) for name in elmore.__all__]")


def test_a_name_that_is_not_there_is_an_attribute_error():
    python("import elmore, pytest\nwith pytest.raises(AttributeError): elmore.nothing")


def test_the_version_is_the_packages():
    assert run_elmore("--version") == (0, f"elmore {__version__}\n", "")


def test_a_usage_error_exits_with_two():
    assert run_elmore("convert").code == 2
    assert run_elmore("sing").code == 2
    assert run_elmore("convert", "a", "b", "--to", "onnx").code == 2


def test_models_lists_every_name_as_a_table_and_as_json():
    table = run_elmore("models")
    assert table.code == 0
    assert table.out.splitlines()[0].split("\t")[0] == "name"
    rows = json.loads(run_elmore("models", "--json").out)
    names = [row["name"] for row in rows]
    assert names[0] == "english"
    assert {"small", "original-5.5B", "seqvec", "many-langs-eu"} <= set(names)
    assert len(table.out.splitlines()) == len(names) + 1
    assert rows[0]["state"] == "bundled"


def test_info_says_what_a_model_is(files):
    facts = json.loads(run_elmore("info", *files, "--json").out)
    assert facts["layers"] == 3
    assert facts["vector width"] == 12
    assert facts["clips"] == "cell 3.0, output 3.0"
    assert set(facts["sha256"]) == {"options.json", "weights.hdf5"}
    shown = run_elmore("info", *files).out
    assert "vector width" in shown
    assert facts["sha256"]["weights.hdf5"] in shown


def test_info_of_the_bundled_model_names_its_data_and_licence():
    facts = json.loads(run_elmore("info", "english", "--json").out)
    assert facts["language"] == "English"
    assert "Wikipedia" in facts["training data"]
    assert facts["licence"].startswith("CC-BY-SA")
    assert "model.safetensors" in facts["sha256"]


def test_info_of_a_model_that_is_not_here_downloads_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("ELMORE_CACHE", str(tmp_path / "cache"))
    facts = json.loads(run_elmore("info", "pubmed", "--json").out)
    assert facts["state"] == "not downloaded yet"
    assert len(facts["files"]) == 2
    assert "not downloaded yet" in run_elmore("info", "pubmed").out
    assert not (tmp_path / "cache").exists()


def test_a_terminal_that_knows_only_ascii_is_no_obstacle():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-c", "import elmore.cli; elmore.cli.main()", "models"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert "Norwegian Bokm\\xe5l" in done.stdout


@pytest.mark.parametrize(
    "command",
    ["sys.argv = ['elmore', 'models']", "elmore.cli._root = lambda: lambda **_: print(1)"],
)
def test_a_closed_pipe_causes_no_error_message(command):
    code = f"import sys, elmore.cli; {command}; elmore.cli.main()"
    running = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait() == 1
    running.stderr.close()


def test_convert_survives_a_round_trip_on_the_command_line(files, tmp_path):
    ours, back = str(tmp_path / "ours"), str(tmp_path / "back")
    assert run_elmore("convert", *files, ours) == (0, f"{ours}\n", "")
    names = {path.name for path in (tmp_path / "ours").iterdir()}
    assert names == {"config.json", "model.safetensors", "README.md"}
    assert run_elmore("convert", ours, back, "--to", "allennlp").code == 0
    assert json.loads((tmp_path / "back/options.json").read_text()) == bilm_options()


def test_the_card_of_a_converted_model_shows_how_to_load_it(files, tmp_path):
    run_elmore("convert", *files, str(tmp_path / "ours"))
    card = (tmp_path / "ours" / "README.md").read_text()
    assert 'elmore.load("path/to/ours")' in card
    assert "| layers | 3 |" in card
