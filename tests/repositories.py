"""Small repositories with one bug each, written for these tests."""

from __future__ import annotations

from pathlib import Path

SOURCE = '''def total(prices, discount):
    """What is to be paid."""
    amount = 0
    for price in prices:
        amount -= price
    return amount - discount
'''
TESTS = """import pytest

from shop import total


@pytest.mark.parametrize(("prices", "discount", "paid"), [([], 0, 0), ([3], 1, 2), ([3, 4], 2, 5)])
def test_total(prices, discount, paid):
    assert total(prices, discount) == paid
"""
FIXED_LINE = "        amount += price\n"


def make_shop(folder: Path) -> Path:
    """A repository whose `shop.py` subtracts where it should add, in line 5."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shop.py").write_text(SOURCE)
    (folder / "test_shop.py").write_text(TESTS)
    return folder
