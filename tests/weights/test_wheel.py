import base64
import csv
import hashlib
import io
import zipfile

import numpy as np
import pytest

from elmore.errors import WeightsError
from elmore.weights import wheel


def written(content) -> bytes:
    file = io.BytesIO()
    wheel.write_wheel(file, content, "x-1.dist-info")
    return file.getvalue()


def test_every_file_comes_back_and_is_in_the_record(tmp_path):
    (tmp_path / "long").write_bytes(bytes(range(256)) * 10_000)
    content = {"x/empty": b"", "x/é.txt": "naïve".encode(), "x/w.safetensors": tmp_path / "long"}
    with zipfile.ZipFile(io.BytesIO(written(content))) as result:
        assert result.testzip() is None
        *names, record = result.namelist()
        assert (names, record) == (list(content), "x-1.dist-info/RECORD")
        assert result.read("x/é.txt").decode() == "naïve"
        assert result.read("x/w.safetensors") == (tmp_path / "long").read_bytes()
        rows = list(csv.reader(result.read(record).decode().splitlines()))
        assert rows[-1] == [record, "", ""]
        for name, digest, size in rows[:-1]:
            data = result.read(name)
            value = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert (digest, int(size)) == (f"sha256={value}", len(data))


def test_the_files_have_a_fixed_date_and_are_readable_by_all():
    with zipfile.ZipFile(io.BytesIO(written({"x/a": b"a"}))) as result:
        for info in result.infolist():
            assert info.date_time == (1980, 1, 1, 0, 0, 0)
            assert info.external_attr >> 16 == 0o100644


def test_weights_take_fewer_bytes_than_by_the_usual_strategy():
    rng = np.random.default_rng(0)
    weights = np.clip(np.round(rng.normal(size=100_000) * 4.5), -15, 15).astype(np.int8).tobytes()
    usual = io.BytesIO()
    with zipfile.ZipFile(usual, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        file.writestr("x/w.safetensors", weights)
    assert len(written({"x/w.safetensors": weights})) < 0.93 * len(usual.getvalue())


def test_a_wheel_that_a_zip_cannot_address_is_refused(monkeypatch):
    monkeypatch.setattr(wheel, "_MAX_BYTES", 1000)
    with pytest.raises(WeightsError, match="x/a: a wheel is limited to 4 GB"):
        written({"x/a": bytes(2000)})
