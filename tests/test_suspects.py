import pytest

from agent_runtime.suspects import suspects

pytestmark = pytest.mark.anyio

FILES = {
    "src/shop/__init__.py": b"from .cart import total\n",
    "src/shop/cart.py": b"from shop import prices\nimport json\n",
    "src/shop/prices.py": b"",
    "src/shop/unused.py": b"",
    "flat.py": b"",
    "broken.py": b"def (",
    "tests/helpers.py": b"import broken\n",
    "tests/test_shop.py": b"from shop import total\nimport helpers, numpy\n",
    "tests/test_flat.py": b"import flat\n",
}


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def read(path):
    return FILES[path]


async def test_imports_of_the_failing_test_are_followed_through_packages():
    found = await suspects({"failures": ["tests/test_shop.py::test_total"]}, FILES, read)
    assert found == [
        "tests/test_shop.py", "src/shop/__init__.py", "tests/helpers.py", "src/shop/cart.py", "broken.py",
    ]  # fmt: skip


async def test_code_on_the_traceback_comes_first():
    tests = {
        "failures": ["tests/test_flat.py::test_it"],
        "first_failure": {
            "code": {"file": "src/shop/prices.py"},
            "traceback": [{"file": "tests/test_flat.py"}, {"file": "src/shop/prices.py"}],
            "place": {"file": "tests/test_flat.py"},
        },
    }
    found = await suspects(tests, FILES, read)
    assert found == ["src/shop/prices.py", "tests/test_flat.py", "flat.py"]


async def test_a_file_that_could_not_be_collected_is_a_suspect():
    assert await suspects({"collection_errors": [{"file": "broken.py"}]}, FILES, read) == ["broken.py"]


async def test_tests_that_hang_and_commands_that_are_not_pytest():
    assert await suspects({"running": "tests/test_flat.py::test_it"}, FILES, read) == ["tests/test_flat.py", "flat.py"]
    assert await suspects({"runner": "command", "exit_code": 1}, FILES, read) == []
