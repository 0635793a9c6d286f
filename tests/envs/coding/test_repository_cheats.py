"""Repositories with wrong code that tries to pass its hidden tests, and what tests can use of a submission."""

import py_compile
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tropism import Session, Task, make
from tropism.sandbox.pool import unavailable_reason

REASON = unavailable_reason("A")
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
TEST = b"""
import unittest
from code_ import f
class Tests(unittest.TestCase):
    def test_first(self): self.assertEqual(f(2), 4)
    def test_second(self): self.assertEqual(f(3), 6)
"""
TASK = Task(
    "double",
    "Write f in code_.py.",
    command="python -m unittest -q test_code",
    files=(("code_.py", b""),),
    hidden_files=(("test_code.py", TEST),),
)
SHARED = replace(TASK, shared_interpreter=True)
CHEAP = {
    "exit at import": "import sys; sys.exit(0)",
    "exit in a test": "def f(x): raise SystemExit(0)",
    "end the process": "import os\ndef f(x): os._exit(0)",
    "skip at import": "import unittest; raise unittest.SkipTest('x')",
    "skip in a test": "import unittest\ndef f(x): raise unittest.SkipTest('x')",
    "patch an assertion": "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\ndef f(x): return 0",
    "patch an assertion late": (
        "import unittest\ndef f(x):\n    unittest.TestCase.assertEqual = lambda *a: None\n    return 0"
    ),
    "replace the framework": "import sys, types; sys.modules['unittest'] = types.ModuleType('x')",
    "patch the verdict": (
        "import unittest\nunittest.TestResult.wasSuccessful = lambda self: True\n"
        "unittest.TestResult.addFailure = lambda *a: None\ndef f(x): return 0"
    ),
    "exit by the framework": "import unittest, sys\nsys.argv[:] = ['x']; unittest.main(argv=['x'])",
    "patch a test": (
        "import sys\ndef f(x):\n    tests = sys.modules['test_code'].Tests\n"
        "    tests.test_second = tests.test_first = lambda self: None\n    return 4"
    ),
    "patch a built-in function": "import builtins\ndef f(x): builtins.getattr = lambda *a: print; return 4",
}
COSTLY = {
    "equal everything": (
        "class Equal(int):\n    __eq__ = lambda *a: True\n    __hash__ = int.__hash__\ndef f(x): return Equal()"
    ),
    "equal everything as an object": "class Equal:\n    __eq__ = lambda *a: True\ndef f(x): return Equal()",
    "forge the reply": (
        "import gc, struct\ndef f(x):\n"
        "    for each in gc.get_objects():\n"
        "        if type(each).__name__ == 'Channel': each.send(b'D', struct.pack('<i', 0))"
    ),
    "read the answer from the caller": (
        "import sys\ndef f(x):\n    frame = sys._getframe(1)\n    return 4 if 'first' in frame.f_code.co_name else 6"
    ),
}


def reward(code: str, task: Task) -> float:
    with Session(*make("Coding-v0", tasks=(task,), tier="A", wall=2)) as coding:
        coding.reset(seed=0)
        return coding.step({"code": f"open('code_.py', 'w').write({code!r})", "submit": True}).reward


@pytest.mark.parametrize("task", [TASK, SHARED], ids=["isolated", "shared"])
@pytest.mark.parametrize("name", CHEAP)
def test_a_cheap_cheat_does_not_pass(name: str, task: Task):
    assert reward(CHEAP[name], task) == 0.0


@pytest.mark.parametrize("name", COSTLY)
def test_isolated_tests_also_reject_what_passes_in_a_shared_interpreter(name: str):
    assert (reward(COSTLY[name], TASK), reward(COSTLY[name], SHARED)) == (0.0, 1.0)


@pytest.mark.parametrize("task", [TASK, SHARED], ids=["isolated", "shared"])
def test_correct_code_passes(task: Task):
    assert reward("def f(x): return 2 * x", task) == 1.0


@pytest.mark.parametrize("task", [TASK, SHARED], ids=["isolated", "shared"])
def test_a_command_that_runs_no_test_does_not_pass(task: Task):
    assert reward("def f(x): return 2 * x", replace(task, hidden_files=(("test_code.py", b"import code_"),))) == 0.0


SHOP = """
RATE = 0.5
class ShopError(ValueError): pass
class EmptyError(ShopError): pass
class Price:
    def __init__(self, cents): self.cents = cents
    def __eq__(self, other): return isinstance(other, Price) and self.cents == other.cents
    def __add__(self, other): return Price(self.cents + other.cents)
    def __repr__(self): return f"Price({self.cents})"
class Basket:
    def __init__(self): self._prices = {}
    def __len__(self): return len(self._prices)
    def __iter__(self): return iter(self._prices)
    def __getitem__(self, name): return self._prices[name]
    def __setitem__(self, name, price): self._prices[name] = price
    def pop(self):
        if not self._prices: raise EmptyError("nothing", 3)
        return self._prices.popitem()
def names(basket): yield from basket
def find(name): return {"tea": 1}[name]
"""
SHOP_TEST = b"""
import unittest
import code_
from code_ import *
class Tests(unittest.TestCase):
    def test_objects(self):
        basket = Basket()
        self.assertFalse(basket)
        basket["tea"] = Price(3) + Price(4)
        self.assertEqual(basket["tea"], Price(7))
        self.assertNotEqual(basket["tea"], 7)
        self.assertEqual(basket["tea"].cents, 7)
        self.assertEqual(str(basket["tea"]), "Price(7)")
        self.assertIsInstance(basket, Basket)
        self.assertNotIsInstance(basket, Price)
        self.assertEqual((len(basket), list(basket), list(names(basket))), (1, ["tea"], ["tea"]))
        self.assertIn("tea", basket)
    def test_exceptions(self):
        with self.assertRaises(ShopError) as caught: Basket().pop()
        self.assertEqual(caught.exception.args, ("nothing", 3))
        with self.assertRaises(ValueError): Basket().pop()
        with self.assertRaisesRegex(KeyError, "^'milk'$"): code_.find("milk")
        with self.assertRaises(AttributeError): code_.missing
    def test_values(self):
        self.assertEqual((code_.RATE, RATE, open("data.txt").read()), (0.5, 0.5, "7"))
"""


@pytest.mark.parametrize("shared", [False, True])
def test_tests_can_use_objects_and_exceptions_of_a_submission(shared: bool):
    hidden = (("test_code.py", SHOP_TEST),)
    files = (*TASK.files, ("data.txt", b"7"))
    assert reward(SHOP, replace(TASK, shared_interpreter=shared, hidden_files=hidden, files=files)) == 1.0


def test_hidden_files_can_be_inside_a_package_of_the_submission():
    test = b"import unittest\nfrom shop import f\nfrom shop.tests.base import Base\nclass Tests(Base):\n"
    test += b"    def test(self): self.assertEqual(f(2), 4)"
    base = b"import unittest\nclass Base(unittest.TestCase): pass"
    task = Task(
        "x",
        "x",
        command="python -m unittest shop.tests.test_shop",
        files=(("shop/__init__.py", b"from shop.inner import f\n"), ("shop/inner.py", b"from code_ import f")),
        hidden_files=(("shop/tests/test_shop.py", test), ("shop/tests/base.py", base)),
    )
    assert reward("def f(x): return 2 * x", task) == 1.0
    assert reward("def f(x): return 4.1", task) == 0.0


def test_a_module_of_the_standard_library_cannot_be_replaced():
    write = (
        "open('unittest.py', 'w').write('import sys; sys.exit(0)'); open('code_.py', 'w').write('def f(x): return 0')"
    )
    with Session(*make("Coding-v0", tasks=(TASK,), tier="A")) as coding:
        coding.reset(seed=0)
        assert coding.step({"code": write, "submit": True}).reward == 0.0


FIRST = b"import unittest, code_\nclass First(unittest.TestCase):\n  def test(self): self.assertTrue(code_.f)"
SECOND = b"""
import unittest, helper
from code_ import f
class Second(unittest.TestCase):
    def test(self): self.assertEqual(f(2), helper.expected())
"""
HIDDEN = {"test_first.py": FIRST, "test_second.py": SECOND, "helper.py": b"def expected(): return 4"}
IN_FOLDER = replace(
    TASK,
    command="python -m unittest discover -s tests",
    hidden_files=tuple((f"tests/{name}", data) for name, data in HIDDEN.items()),
)
WITH_PYTEST = replace(IN_FOLDER, command="python -m pytest -q -p no:cacheprovider tests")
WRONG, CORRECT = b"def f(x): return 0", b"def f(x): return 4"
REPLACEMENTS: dict[str, dict[str, bytes]] = {
    "a test": {"test_second.py": b"__file__ = '/tmp/tests/test_second.py'"},
    "a module of the tests": {"helper.py": b"def expected(): return 0"},
}
REPLACEMENTS_OF_PYTEST: dict[str, dict[str, bytes]] = {
    "the settings": {"pytest.ini": b"[pytest]\naddopts = --collect-only"},
    "pytest": {"pytest/__init__.py": b"", "pytest/__main__.py": b""},
    "a package that it requires": {
        "_pytest/__init__.py": b"def __getattr__(name): return int",
        "_pytest/config.py": b"def __getattr__(name): return int",
    },
}


def reward_of_files(files: dict[str, bytes], task: Task, **arguments: Any) -> float:
    with Session(*make("Coding-v0", tasks=(task,), tier="A", **arguments)) as coding:
        coding.reset(seed=0)
        for path, data in files.items():
            coding.write_file(path, data)
        return coding.step({"code": "", "submit": True}).reward


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", REPLACEMENTS)
def test_a_submission_replaces_nothing_of_its_tests(name: str, shared: bool):
    task = replace(IN_FOLDER, shared_interpreter=shared)
    assert reward_of_files({"code_.py": WRONG, **REPLACEMENTS[name]}, task) == 0.0
    assert reward_of_files({"code_.py": CORRECT, **REPLACEMENTS[name]}, task) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shared"), [(None, False), ("the settings", True), ("pytest", True), ("a package that it requires", False)]
)
def test_a_submission_replaces_nothing_of_pytest(name: str | None, shared: bool):
    files = {"code_.py": WRONG, **REPLACEMENTS_OF_PYTEST[name]} if name else {"code_.py": CORRECT}
    task = replace(WITH_PYTEST, shared_interpreter=shared)
    assert reward_of_files(files, task, packages=("pytest",)) == float(name is None)


def test_a_compiled_file_replaces_no_test(tmp_path: Path):
    (tmp_path / "empty.py").touch()
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compiled = py_compile.compile(str(tmp_path / "empty.py"), str(tmp_path / "empty.pyc"), invalidation_mode=mode)
    assert compiled is not None
    name = f"tests/__pycache__/test_second.{sys.implementation.cache_tag}.pyc"
    files = {"code_.py": WRONG, name: Path(compiled).read_bytes()}
    assert reward_of_files(files, replace(IN_FOLDER, shared_interpreter=True)) == 0.0
