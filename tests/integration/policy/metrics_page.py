"""The page that Prometheus reads of a service."""

import asyncio
import urllib.request


async def read_values(port: int) -> dict[str, float]:
    """Every line's number by its metric; of lines that differ in labels alone the last."""

    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
            page: str = response.read().decode()
        return page

    page = await asyncio.to_thread(read)
    lines = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    return {name.partition("{")[0]: float(value) for name, value in lines.items()}
