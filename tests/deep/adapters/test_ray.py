"""`form.ray`: an aggregate of Ray Data, over all rows and by group, in processes of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import redalg as ra
from tests.support.forms import form_of_text

ray: Any = pytest.importorskip("ray")
pytest.importorskip("ray.data")
pd: Any = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def running() -> Iterator[None]:
    paths = {"env_vars": {"PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), os.getcwd()])}}
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False, runtime_env=paths)
    yield
    ray.shutdown()


def test_results_are_the_definitions(running: None) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"price": rng.normal(size=200) + 1e4, "w": rng.random(200), "k": np.arange(200) % 3})
    form = form_of_text("return c = cov[j](x[j], w[j])")
    data = ray.data.from_pandas([frame[:50], frame[50:50], frame[50:]])
    wanted = ra.reference(form.spec, x=frame.price.to_numpy(), w=frame.w.to_numpy())
    np.testing.assert_allclose(data.aggregate(form.ray(x="price"))["c"], wanted, rtol=1e-9)
    rows = data.groupby("k").aggregate(form.ray("found", x="price")).take_all()
    for row in rows:
        own = frame[frame.k == row["k"]]
        one = ra.reference(form.spec, x=own.price.to_numpy(), w=own.w.to_numpy())
        np.testing.assert_allclose(row["found"], one, rtol=1e-9)
    assert len(rows) == 3


def test_forms_with_an_order_are_refused() -> None:
    with pytest.raises(ra.RedalgError, match="order of the rows"):
        form_of_text("return p = argmax[j](x[j])").ray()
