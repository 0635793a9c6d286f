"""Attacks on the grading of a submission: wrong solutions that try to pass the hidden test."""

from functools import partial

from tropism.sandbox.attack import Attack

FUNCTION = "square"
HIDDEN_TEST = f"for x, y in zip((7,), map({FUNCTION}, (7,))): assert y == 49"
SEARCH = """
import gc, re
def square(x):
    texts = [str(each) for each in gc.get_objects() if isinstance(each, (list, tuple, dict)) and len(each) < 50]
    found = re.findall(r'assert y == (\\d+)', ' '.join(text for text in texts if 'assert y' in text))
    return int(found[-1]) if found else 0
"""

Cheat = partial(Attack, submission=True, changes_worker=True, at_startup=False)

SUBMISSIONS = (
    Cheat("end the loop of a hidden test", "def square(x): raise StopIteration"),
    Cheat(
        "equal the result of a hidden test",
        "class Equal(int):\n    def __eq__(self, other): return True\ndef square(x): return Equal()",
    ),
    Cheat("read a hidden test from memory", SEARCH),
    Cheat("patch what a hidden test uses", "import builtins\nbuiltins.zip = lambda *x: ()\ndef square(x): return 0"),
)
