"""Who calls: known from a call's credentials to everything that runs on its behalf."""

from __future__ import annotations

from contextvars import ContextVar

_TENANT: ContextVar[str] = ContextVar("earvoice_tenant", default="")


def current_tenant() -> str:
    """Return the tenant whose call this task serves; empty without authentication."""
    return _TENANT.get()


def set_tenant(tenant: str) -> None:
    """Note whose call this task serves; tasks that it starts from now on know it too."""
    _TENANT.set(tenant)
