"""The page in a real browser, whose microphone plays a recording, over all services."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from tests.browser import chromium
from tests.deploy.tool import program

RECORDING = Path(__file__).parents[2] / "demo" / "inaugural_1961.wav"
PATIENCE_MS = 120_000
VIEWS = [
    (width, height, scheme)
    for width, height in ((320, 640), (1280, 720), (3840, 2160))
    for scheme in ("light", "dark")
]
# Notes what happens to a word after it has come: nothing should.
WATCH = """
window.touched = [];
new MutationObserver((records) => {
  for (const record of records) {
    const isWord = (node) => node.nodeType === 1 && node.classList.contains("word");
    if (record.type === "characterData") window.touched.push(record.target.data);
    for (const node of record.removedNodes) if (isWord(node)) window.touched.push(node.textContent);
    const inWord = record.target.closest?.(".word");
    if (inWord && record.removedNodes.length) window.touched.push(inWord.textContent);
  }
}).observe(document.getElementById("captions"),
           {childList: true, subtree: true, characterData: true});
"""

pytestmark = pytest.mark.torch


@pytest.fixture
async def browser():
    """Chromium with a recording for a microphone."""
    async with chromium(
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={RECORDING}%noloop",
    ) as launched:
        yield launched


async def open_page(browser, gateway: str, query: str = ""):
    """Open the page, and note what goes wrong on it."""
    context = await browser.new_context(permissions=["microphone"])
    context.set_default_timeout(PATIENCE_MS)
    page = await context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda note: problems.append(note.text) if note.type == "error" else None)
    await page.goto(f"http://localhost:{gateway.rpartition(':')[2]}/{query}")
    return page, problems


async def speak(page) -> None:
    """Begin to speak, and wait until words have come in every language that was chosen."""
    await page.locator("#start:enabled").click(timeout=PATIENCE_MS)


def without_blanks(parts: list[str]) -> str:
    """The text alone: lines are broken differently in each place."""
    return "".join("".join(parts).split())


async def words_of(page, language: str) -> list[str]:
    return await page.locator(f"section[data-language={language}] .word").all_inner_texts()


async def download(page, form: str) -> list[str]:
    """The lines of the file that a button gives."""
    async with page.expect_download() as coming:
        await page.get_by_role("button", name=form).click()
    path = await (await coming.value).path()
    return (await asyncio.to_thread(path.read_text, encoding="utf8")).splitlines()


@pytest.mark.timeout(600)
async def test_words_appear_while_the_microphone_plays_and_never_change(
    browser, gateway: str, tmp_path: Path
):
    """Two languages at once; a reader of the published stream sees the same text."""
    page, problems = await open_page(browser, gateway, "?to=de,es&publish=hall")
    await page.evaluate(WATCH)
    await speak(page)
    for language in ("de", "es"):
        word = page.locator(f"section[data-language={language}] .word").first
        await word.wait_for(timeout=PATIENCE_MS)
    # The recording plays on: these words came while it did.
    assert await page.locator("#status").inner_text() == "Live"
    reader, reader_problems = await open_page(browser, gateway, "?stream=hall&to=de")
    await reader.locator("section[data-language=de] .word").first.wait_for(timeout=PATIENCE_MS)
    early = await words_of(page, "de")
    for width, height, scheme in VIEWS:
        await page.set_viewport_size({"width": width, "height": height})
        await page.emulate_media(color_scheme=scheme)
        overflow = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        assert not await page.evaluate(overflow), f"{width} pixels are too few"
        assert (await page.screenshot(path=tmp_path / f"{width}-{scheme}.png")).startswith(
            b"\x89PNG"
        )
    await page.locator("#start").click()
    await page.locator("#status", has_text="Ended.").wait_for(timeout=PATIENCE_MS)
    await reader.locator("#status", has_text="ended").wait_for(timeout=PATIENCE_MS)
    final = await words_of(page, "de")
    assert final[: len(early)] == early
    assert await page.evaluate("window.touched") == []
    assert without_blanks(await words_of(reader, "de")) == without_blanks(final)
    # A reader that comes last has everything in its files, too.
    await reader.reload()
    await reader.locator("#status", has_text="ended").wait_for(timeout=PATIENCE_MS)
    for form in ("SRT", "TXT"):
        spoken = [line for line in await download(reader, form) if "-->" not in line]
        words = [line for line in spoken if not line.isdigit()]
        assert without_blanks(words) == without_blanks(final)
    other, _ = await open_page(browser, gateway, "?stream=hall&to=xx")
    await other.locator("#status", has_text="allowed: de or es").wait_for(timeout=PATIENCE_MS)
    # And it waits for the next stream of this name.
    await open_page(browser, gateway, "?to=de&publish=hall&autostart=1")
    await reader.locator("#status", has_text="Live").wait_for(timeout=PATIENCE_MS)
    lags = (
        "words => words.map(({dataset}) => [Number(dataset.lagMs), Number(dataset.serviceLagMs)])"
    )
    for lag_ms, service_lag_ms in await page.locator(".word").evaluate_all(lags):
        # Audio is at the page before it is at the service, words later; clocks follow sound cards.
        assert lag_ms >= service_lag_ms - 5
        assert service_lag_ms > 0
    assert problems == reader_problems == []


async def test_the_newest_words_are_in_view_until_somebody_scrolls_up(browser, gateway: str):
    """On a phone, too, and however much comes at once."""
    page, problems = await open_page(browser, gateway)
    await page.set_viewport_size({"width": 320, "height": 640})
    hidden, top, below = await page.evaluate(
        """async () => {
            const { Captions } = await import("./captions.js");
            const captions = new Captions(document.getElementById("captions"), {}, {});
            const column = captions.column("de");
            const frame = () => new Promise(requestAnimationFrame);
            for (const utterance of [0, 1]) {
                column.addLine({ utterance, text: "viele Worte ".repeat(60) });
                await frame();
            }
            const { lines } = column;
            const hidden = lines.scrollHeight - lines.scrollTop - lines.clientHeight;
            lines.scrollTop = 0;
            await frame();
            await frame();
            column.addLine({ utterance: 2, text: "das Ende" });
            const top = lines.scrollTop;
            lines.scrollTop = lines.scrollHeight;
            return [hidden, top, column.line.getBoundingClientRect().bottom - innerHeight];
        }"""
    )
    assert hidden <= 1
    assert top == 0
    assert below <= 0
    assert problems == []


@pytest.mark.timeout(600)
async def test_captions_are_downloaded_as_subtitles(browser, gateway: str):
    """Cues do not overlap, and hold every word."""
    page, problems = await open_page(browser, gateway, "?to=de")
    await speak(page)
    await page.locator(".word").nth(3).wait_for(timeout=PATIENCE_MS)
    await page.locator("#start").click()
    await page.locator("#status", has_text="Ended.").wait_for(timeout=PATIENCE_MS)
    lines = await download(page, "VTT")
    assert lines[:2] == ["WEBVTT", ""]
    times = [line.split(" --> ") for line in lines if "-->" in line]
    flat = [moment for pair in times for moment in pair]
    assert flat == sorted(flat)
    spoken = [line for line in lines[1:] if line and "-->" not in line]
    assert without_blanks(spoken) == without_blanks(await words_of(page, "de"))
    assert problems == []


@pytest.mark.timeout(600)
async def test_the_overlay_is_a_bar_on_a_transparent_ground(browser, gateway: str):
    """Nothing but captions: what OBS lays over a picture."""
    page, _ = await open_page(browser, gateway, "?overlay=1&to=de&autostart=1")
    await page.locator(".word").first.wait_for(timeout=PATIENCE_MS)
    for hidden in ("header", "footer", "#controls"):
        assert not await page.locator(hidden).is_visible()
    ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgba(0, 0, 0, 0)"


@pytest.mark.timeout(600)
async def test_a_recording_that_the_browser_cannot_read_is_read_for_it(
    browser, gateway: str, tmp_path: Path
):
    """Chromium has no AC-3; what is no recording at all is told by its name."""
    talk, notes = tmp_path / "talk.mkv", tmp_path / "notes.mkv"
    command = [program("ffmpeg"), "-v", "error", "-i", str(RECORDING), "-c:a", "ac3", str(talk)]
    await asyncio.to_thread(subprocess.run, command, check=True)
    notes.write_text("no sound here")
    page, problems = await open_page(browser, gateway, "?to=de")
    await page.locator("#start:enabled").wait_for(timeout=PATIENCE_MS)
    await page.locator("#file").set_input_files(talk)
    await page.locator(".word").first.wait_for(timeout=PATIENCE_MS)
    await page.locator("#start").click()
    await page.locator("#status", has_text="Ended.").wait_for(timeout=PATIENCE_MS)
    assert problems == []
    await page.locator("#file").set_input_files(notes)
    told = page.locator("#status", has_text="notes.mkv: the recording cannot be read")
    await told.wait_for(timeout=PATIENCE_MS)
