"""Twenty seconds of 32 clients, by the benchmark itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

from elmore.weights import folder
from tests import language

ROOT = Path(__file__).parents[2]


def test_thirty_two_clients_are_served_without_an_error_in_flat_memory(bundle, tmp_path):
    folder.save(bundle, tmp_path / "model")
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in language.sentences(400)))
    results = tmp_path / "results.json"
    command = [sys.executable, str(ROOT / "benchmarks/serve_load.py"), str(results)]
    command += ["--model", str(tmp_path / "model"), "--text", str(tmp_path / "text")]
    command += ["--clients", "32", "--seconds", "20", "--bulk", "200"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(results.read_text())
    for part in ("alone", "loaded", "half"):
        assert set(found[part]["statuses"]) == {"200"}, part
    assert found["loaded"]["requests"] > 500
    assert found["exit"] == 0
    memory = found["megabytes"]
    assert memory[-1] < 1.1 * memory[len(memory) // 5]
    assert "32 clients" in done.stdout
