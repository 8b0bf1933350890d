"""Bits that flip on a disk are noticed: checksums of pages, of files, and of their list."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import butfor as bf
from butfor.audit.audit import Audit
from butfor.cli.main import app
from tests.audits import trade_audit, unseal
from tests.builders import random_log
from tests.damage import TABLES, count_flips, flip, same_audit


@pytest.fixture(scope="module")
def audit():
    return trade_audit()


@pytest.fixture
def folder(audit, tmp_path):
    return audit.save(tmp_path / "audit")


def test_flipped_bits_are_reported(folder):
    """A few; verification/test_audit_flips.py flips 1,500."""
    saved = Audit.load(folder)
    paths = sorted(folder.iterdir())
    found = count_flips(paths, lambda: Audit.load(folder), lambda a: same_audit(a, saved), 60)
    assert {result for _, result in found} == {"reported"}


@pytest.mark.parametrize("name", ["meta.json", "model.npz", *(f"{t}.parquet" for t in TABLES)])
@pytest.mark.parametrize("shown", [False, True])
def test_the_error_names_the_file(folder, name, shown):
    path = folder / name
    content = path.read_bytes()
    place = content.find(b'"words"') if name == "meta.json" else len(content) // 2
    path.write_bytes(flip(content, 8 * place + 8))
    with pytest.raises(ValueError, match="changed or is damaged") as found:
        Audit.load(folder, shown=shown)
    assert str(found.value).startswith(f"{path}: ")


@pytest.mark.parametrize("key", [b'"files"', b'"sha256"'])
def test_checksums_cannot_get_lost_by_a_bit(folder, key):
    path = folder / "meta.json"
    content = path.read_bytes()
    path.write_bytes(flip(content, 8 * content.rfind(key) + 8))
    with pytest.raises(ValueError, match=r"meta\.json: .*changed or is damaged"):
        Audit.load(folder)


def test_files_that_are_missing_or_foreign_are_reported(folder):
    (folder / "clusters.npz").write_bytes(b"foreign")
    with pytest.raises(ValueError, match=r"clusters\.npz: .*changed or is damaged"):
        Audit.load(folder)
    (folder / "clusters.npz").unlink()
    assert len(Audit.load(folder).episodes)


def test_the_list_in_meta_json_is_that_of_sha256sum(folder):
    listed = json.loads((folder / "meta.json").read_text())["files"]
    others = [path for path in folder.iterdir() if path.name != "meta.json"]
    assert listed == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in others}


def test_audits_without_checksums_are_read(folder):
    saved = Audit.load(folder)
    assert same_audit(Audit.load(unseal(folder)), saved)


@pytest.fixture
def log(tmp_path):
    """A log of whole numbers whose pages are stored as they are."""
    study = bf.write_episodes(random_log(np.random.default_rng(0)), tmp_path / "log.parquet")
    return tmp_path / "log.parquet", study


def test_a_flipped_bit_in_a_page_of_a_log_is_reported(log):
    path, study = log
    before = bf.read_episodes(path, study)
    chunk = pa.parquet.read_metadata(path).row_group(0).column(0)
    content = path.read_bytes()
    page = chunk.data_page_offset + chunk.total_compressed_size // 2
    path.write_bytes(flip(content, 8 * page))
    with pytest.raises(ValueError, match=r"log\.parquet: damaged"):
        bf.read_episodes(path, study)
    path.write_bytes(content)
    assert len(bf.read_episodes(path, study)) == len(before)


def run(log, *options):
    path, study = log
    command = ["audit", path, "--study", study, "--out", path.parent / "audit", *options]
    return CliRunner().invoke(app, list(map(str, [*command, "--models", 0, "--no-rehearsal"])))


def test_a_log_is_compared_with_a_list_of_checksums(log):
    path, _ = log
    listing = path.parent / "SHA256SUMS.txt"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    listing.write_text(f"{'0' * 64} *elsewhere/other.csv\n{digest}  log.parquet\n")
    done = run(log, "--checksums", listing)
    assert done.exit_code == 0, done.output
    noted = Audit.load(path.parent / "audit").meta.made_by["checksums"]
    assert noted == hashlib.sha256(listing.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{zeros}  log.parquet\n", "its SHA-256 is not the one in"),
        ("{zeros}  other.parquet\n", "has no checksum of"),
        ("log.parquet\n", "line 1 is not a checksum and a path"),
    ],
)
def test_a_log_with_other_checksums_is_refused(log, text, words):
    listing = log[0].parent / "SHA256SUMS.txt"
    listing.write_text(text.format(zeros="0" * 64))
    done = run(log, "--checksums", listing)
    assert done.exit_code == 2
    assert words in " ".join(done.output.split())
    assert not (log[0].parent / "audit").exists()
