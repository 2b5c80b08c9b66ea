"""Arrays from files: what numpy writes comes back, and what a header promises is not believed."""

import io
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from elmore import npy
from elmore.errors import DataError

KINDS = ["|b1", "|i1", "<i4", ">i8", "<u2", "<u4", "<f2", "<f4", ">f4", "<f8"]


def written(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=False)
    return file.getvalue()


def with_header(text: str, data: bytes = b"", version: int = 1) -> bytes:
    width = 2 if version == 1 else 4
    return (
        b"\x93NUMPY"
        + bytes([version, 0])
        + len(text).to_bytes(width, "little")
        + text.encode()
        + data
    )


@given(
    st.data(),
    st.sampled_from(KINDS),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0),
    st.booleans(),
)
def test_files_of_numpy_are_read_and_mapped(tmp_path_factory, data, kind, shape, fortran):
    array = data.draw(arrays.arrays(np.dtype(kind), shape))
    array = np.asfortranarray(array) if fortran else array
    path = tmp_path_factory.mktemp("npy") / "array.npy"
    path.write_bytes(written(array))
    for result in (npy.read_npy(path), npy.map_npy(path)):
        assert result.dtype == array.dtype
        np.testing.assert_array_equal(result, array)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_other_writers_are_read_too(tmp_path, version):
    path = tmp_path / "array.npy"
    header = '{"shape":(2L, 1L), "descr":"<i2","fortran_order":False}\n'
    path.write_bytes(with_header(header, b"\1\0\2\0", version))
    np.testing.assert_array_equal(npy.read_npy(path), np.array([[1], [2]], np.int16))


HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93NUMPY",
        b"\x93NUMPY\x09\x00" + b"\0" * 100,
        written(np.zeros(4))[:90],
        written(np.zeros(4))[:-1],
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
        with_header("{'descr': '''", b""),  # no Python literal: tokenize.TokenError in numpy
        with_header("-" * 9000 + "1"),
        with_header("{" * 500),
        with_header(HEADER.replace("'<f4'", "'|O'"), b"\0" * 8),
        with_header(HEADER.replace("'<f4'", "[('a', '<f4')]"), b"\0" * 8),
        with_header(HEADER.replace("(2,)", "(-2,)"), b"\0" * 8),
        with_header(HEADER.replace("(2,)", "(2 2,)"), b"\0" * 16),
        with_header(HEADER.replace("(2,)", "(" + "9" * 5000 + ",)"), b"\0" * 8),
        with_header(HEADER.replace("(2,)", "(999999999999999999, 999999999999999999)"), b"\0" * 8),
        with_header(HEADER.replace("(2,)", "(0, 999999999999999999, 999999999999999999)")),
        with_header("{" + " " * 65000 + "x"),
        with_header(HEADER.replace("(2,)", "(1," * 40 + ")"), b"\0" * 8),
        with_header(HEADER.replace("(2,)", "(,,)"), b"\0" * 8),
        with_header(HEADER.replace("'descr': '<f4', ", ""), b"\0" * 8),
        with_header(HEADER.replace("'shape'", "'fortran_order'"), b"\0" * 8),
        with_header(HEADER[:-1] + "'more': 1}", b"\0" * 8),
    ],
    ids=range(22),
)
def test_an_invalid_array_is_reported_in_one_sentence(tmp_path, data):
    path = tmp_path / "array.npy"
    path.write_bytes(data)
    for reader in (npy.read_npy, npy.map_npy):
        with pytest.raises(DataError, match=r"array\.npy: not a readable array \("):
            reader(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.npy: cannot be read \(No such file"):
        npy.read_npy(tmp_path / "none.npy")


def archive(path, compression=zipfile.ZIP_STORED, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)


def test_an_archive_gives_the_arrays_asked_for(tmp_path):
    path = tmp_path / "arrays.npz"
    np.savez(path, a=np.arange(3), b=np.ones((2, 2), np.float32), other=np.zeros(1))
    result = npy.read_npz(path, ["a", "b"])
    np.testing.assert_array_equal(result["a"], np.arange(3))
    np.testing.assert_array_equal(result["b"], np.ones((2, 2)))


@pytest.mark.parametrize(
    "said", ["compressed", "absent", "no array", "promises more", "damaged", "cut", "no zip"]
)
def test_an_invalid_archive_is_reported_in_one_sentence(tmp_path, said):
    path = tmp_path / "arrays.npz"
    if said == "compressed":  # where a small file could fill the memory
        archive(path, zipfile.ZIP_DEFLATED, a=written(np.zeros(1000)))
    elif said == "absent":
        archive(path, b=written(np.zeros(1)))
    elif said == "no array":
        archive(path, a=b"something else")
    elif said == "promises more":
        archive(path, a=with_header(HEADER.replace("2,", "3,"), b"\0" * 8))
    else:
        archive(path, a=written(np.arange(9.0)))
        data = path.read_bytes()
        damage = {"damaged": data.replace(b"\x40", b"\x41"), "cut": data[:-30], "no zip": b"?"}
        path.write_bytes(damage[said])
    with pytest.raises(DataError, match=r"arrays\.npz"):
        npy.read_npz(path, ["a"])
