"""What the tests of deploy/ share."""

import pytest

from tests.deploy.manifest import Combination, everything, render, render_overlay


@pytest.fixture(params=["base", "dev", "prod", "everything"])
def objects(request):
    """The rendered objects of combinations that together have every file in them."""
    if request.param in ("dev", "prod"):
        return render_overlay(request.param)
    combination = everything() if request.param == "everything" else Combination()
    return render(combination)
