"""Settings every test shares."""

import os

from hypothesis import settings

# The first example of a property compiles and the others do not, so a time limit per example means nothing.
# On a build machine the examples are always the same ones, so that a red build can be repeated.
settings.register_profile("tropism", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("tropism")
