"""The Chromium that the machine has, driven by playwright."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.deploy.tool import program


@asynccontextmanager
async def chromium(*options: str) -> AsyncIterator:
    """Give a browser that asks nobody anything; skips the test where there is none."""
    path = program("chromium")
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(
            executable_path=path,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--autoplay-policy=no-user-gesture-required",
                *options,
            ],
        )
        try:
            yield launched
        finally:
            await launched.close()
