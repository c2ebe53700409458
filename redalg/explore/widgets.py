"""Interactive displays where ipywidgets is there and a notebook asks for one; beside each stands a page that is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WIDGET = "application/vnd.jupyter.widget-view+json"


def toolkit() -> Any:
    """ipywidgets, or None where it is not installed or no notebook's kernel is running."""
    try:
        import ipywidgets
        from IPython import get_ipython
    except ImportError:
        return None
    shell = get_ipython()
    return ipywidgets if shell is not None and hasattr(shell, "kernel") else None


def view(make: Callable[[Any], Any]) -> dict[str, Any]:
    """The MIME entry of the widget that ``make(ipywidgets)`` builds; nothing where there is no toolkit."""
    widgets = toolkit()
    if widgets is None:
        return {}
    made = make(widgets)._repr_mimebundle_()
    data = made[0] if isinstance(made, tuple) else made
    return {WIDGET: data[WIDGET]} if data and WIDGET in data else {}
