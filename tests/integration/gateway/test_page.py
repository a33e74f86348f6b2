"""The page in Chromium, against a policy service that plays a script."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
import soundfile
import webvtt

from earvoice.runtime.errors import NotReadyError, SessionLimitError
from tests.browser import chromium
from tests.integration.client.scripted_service import ScriptedService, serve
from tests.integration.gateway.running_gateway import run_gateway
from tests.proxy import open_proxy
from tests.until import PATIENCE_S

PATIENCE_MS = 1000 * PATIENCE_S
ELSEWHERE = "captions.example"
"""A name of this machine that browsers do not know for it."""
TONE_MS = 250
"""Two chunks and a half."""
BLOCK_SAMPLES = 128
"""That a browser computes at once."""
DROP_TWO = """(content) => {
  const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
  for (const name of ["one.wav", "two.wav"]) {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([bytes], name, {type: "audio/wav"}));
    document.dispatchEvent(new DragEvent("drop", {dataTransfer, cancelable: true}));
  }
}"""


@pytest.fixture
def tone(tmp_path):
    """A recording."""
    path = tmp_path / "tone.wav"
    soundfile.write(path, [0.5] * (16 * TONE_MS), 16_000, subtype="PCM_16")
    return path


@asynccontextmanager
async def opened(service, query="?to=de", host="localhost", **settings):
    """Give the page, the addresses of its WebSockets until now, and the gateway's door."""
    async with (
        serve(service) as server,
        run_gateway(server, **settings) as (address, door),
        chromium(
            "--use-fake-ui-for-media-stream",
            "--use-fake-device-for-media-stream",
            f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1",
        ) as browser,
    ):
        context = await browser.new_context(permissions=["microphone"])
        context.set_default_timeout(PATIENCE_MS)
        page = await context.new_page()
        sockets = []
        page.on("websocket", lambda socket: sockets.append(socket.url))
        await page.goto(f"http://{host}:{address.rpartition(':')[2]}/{query}")
        await page.locator("#start:enabled").wait_for(state="attached", timeout=PATIENCE_MS)
        yield page, sockets, door


async def wait_for_end(page):
    await page.locator("#status", has_text="Ended.").wait_for(timeout=PATIENCE_MS)


async def test_a_recording_is_heard_up_to_its_end(tone):
    """Also what is less than a chunk."""
    service = ScriptedService([" gut"])
    async with opened(service) as (page, _, _):
        await page.locator("#file").set_input_files(tone)
        await wait_for_end(page)
        rate_hz = service.configs[0].sample_rate_hertz
    samples = sum(map(len, service.audio)) // 2
    assert samples > rate_hz * TONE_MS // 1000 - BLOCK_SAMPLES


async def test_the_same_recording_can_be_chosen_again(tone):
    """By the same button."""
    async with opened(ScriptedService([" gut"])) as (page, sockets, _):
        await page.select_option("#source", "file")
        page.on("dialog", lambda dialog: dialog.accept())
        for count in (1, 2):
            async with page.expect_file_chooser() as choosing:
                await page.locator("#start").click()
            async with page.expect_websocket(timeout=PATIENCE_MS):
                await (await choosing.value).set_files(tone)
            await wait_for_end(page)
            assert len(sockets) == count


async def test_captions_go_on_after_a_stop(tmp_path):
    """Nobody may have downloaded them; what is said later has later times."""
    async with opened(ScriptedService([" gut"])) as (page, _, _):
        for count in (1, 2):
            await page.locator("#start").click()
            await page.locator(".word").nth(count - 1).wait_for(timeout=PATIENCE_MS)
            await page.locator("#start").click()
            await wait_for_end(page)
        async with page.expect_download(timeout=PATIENCE_MS) as downloading:
            await page.locator("[data-format=vtt]").click()
        await (await downloading.value).save_as(tmp_path / "captions.vtt")
        lags = await page.locator(".word").evaluate_all("all => all.map((w) => +w.dataset.lagMs)")
    first, second = webvtt.read(tmp_path / "captions.vtt")
    assert first.text == second.text == "gut"
    assert second.start_in_seconds > first.start_in_seconds
    assert all(0 < lag < PATIENCE_MS for lag in lags)


@pytest.mark.parametrize("answer", ["accept", "dismiss"])
async def test_a_recording_replaces_captions_only_if_that_is_agreed_to(answer, tone):
    """Its own count from its beginning; those that were downloaded are replaced unasked."""
    service = ScriptedService([" eins"])
    async with opened(service) as (page, sockets, _):
        await page.locator("#start").click()
        await page.locator(".word").wait_for(timeout=PATIENCE_MS)
        await page.locator("#start").click()
        await wait_for_end(page)
        service.words = [" zwei"]
        asked = []

        async def reply(dialog):
            asked.append(dialog.message)
            await getattr(dialog, answer)()

        page.on("dialog", reply)
        await page.locator("#file").set_input_files(tone)
        replaced = page.locator(".word", has_text="zwei")
        if answer == "accept":
            await replaced.wait_for(timeout=PATIENCE_MS)
            await wait_for_end(page)
        else:
            await page.locator("#status", has_text="Ready.").wait_for(timeout=PATIENCE_MS)
        assert len(asked) == 1
        assert await page.locator(".word").all_inner_texts() == [
            "zwei" if answer == "accept" else "eins"
        ]
        assert len(sockets) == (2 if answer == "accept" else 1)
        async with page.expect_download(timeout=PATIENCE_MS):
            await page.locator("[data-format=txt]").click()
        service.words = [" drei"]
        await page.locator("#file").set_input_files(tone)
        await page.locator(".word", has_text="drei").wait_for(timeout=PATIENCE_MS)
        assert len(asked) == 1


async def test_two_recordings_at_once_are_one_stream(tone):
    """While the first is opened there is no stream yet."""
    async with opened(ScriptedService([" gut"])) as (page, sockets, door):
        await page.evaluate(DROP_TWO, b64encode(tone.read_bytes()).decode())
        await wait_for_end(page)
        async with asyncio.timeout(PATIENCE_S):
            while door.speaker_count:
                await asyncio.sleep(0.01)
        assert len(sockets) == 1


class Forgetful(ScriptedService):
    """Its second word comes without a place to resume from."""

    def _release(self, text):
        response = super()._release(text)
        if text == self.words[0]:
            response.committed.resume_token = b"place"
        return response


async def test_words_without_a_place_do_not_come_again():
    """The stream ends with what was wrong instead of repeating them."""
    service = Forgetful([" eins", " zwei"])
    async with opened(service, drain_grace_ms=1) as (page, sockets, door):
        await page.locator("#start").click()
        await page.locator(".word").nth(1).wait_for(timeout=PATIENCE_MS)
        await door.drain()
        await page.locator("#status[data-kind=error]").wait_for(timeout=PATIENCE_MS)
        assert await page.locator("#status").inner_text() == "the gateway is going away"
        assert len(sockets) == 1


async def test_the_bar_shows_two_whole_lines_on_one_ground():
    """It ends where the text does; no slice of an older line; the tail differs from what stays."""
    async with opened(ScriptedService(), "?to=de&overlay=1") as (page, _, _):
        height, line_height, widths, ground, word, tail = await page.evaluate(
            """async () => {
                const { Captions } = await import("./captions.js");
                const main = document.getElementById("captions");
                const column = new Captions(main, {}, {}).column("de");
                const text = "viele Worte ".repeat(25);
                for (const utterance of [0, 1, 2]) column.addLine({ utterance, text });
                column.setTail("das Ende", 2);
                const { lineHeight, backgroundColor } = getComputedStyle(column.line);
                const [word, tail] = column.line.querySelectorAll("span");
                return [
                    column.lines.clientHeight, parseFloat(lineHeight),
                    [...column.line.getClientRects()].map(({ width }) => width),
                    backgroundColor,
                    getComputedStyle(word).color, getComputedStyle(tail).color,
                ];
            }"""
        )
    assert abs(height - 2 * line_height) < 1
    assert widths[0] > widths[-1]
    assert ground != "rgba(0, 0, 0, 0)"
    assert word != tail


async def test_a_page_without_tls_tells_why_it_gets_no_sound(tone):
    """By the name of another machine, browsers have neither microphones nor worklets for it."""
    origins = (f"http://{ELSEWHERE}",)
    async with opened(ScriptedService(), host=ELSEWHERE, allowed_origins=origins) as (page, _, _):
        told = page.locator("#status", has_text="only to pages over https or from localhost")
        await page.locator("#start").click()
        await told.wait_for(timeout=PATIENCE_MS)
        await page.reload()
        await page.locator("#start:enabled").wait_for(timeout=PATIENCE_MS)
        await page.locator("#file").set_input_files(tone)
        await told.wait_for(timeout=PATIENCE_MS)


async def test_languages_cannot_be_chosen_while_a_stream_runs():
    """They would not be translated into."""
    async with opened(ScriptedService([" gut"])) as (page, _, _):
        await page.locator("#start").click()
        await page.locator(".word").wait_for(timeout=PATIENCE_MS)
        boxes = page.locator("#languages input")
        assert await boxes.is_disabled()
        assert await page.locator("#source").is_disabled()
        await page.locator("#start").click()
        await wait_for_end(page)
        assert await boxes.is_enabled()


async def test_a_microphone_that_goes_is_told():
    """Nobody has stopped it; all words before are there."""
    async with opened(ScriptedService([" gut"])) as (page, _, _):
        await page.evaluate(
            """() => {
                const devices = navigator.mediaDevices;
                const open = devices.getUserMedia.bind(devices);
                devices.getUserMedia = async (wanted) => (window.heard = await open(wanted));
            }"""
        )
        await page.locator("#start").click()
        await page.locator(".word").wait_for(timeout=PATIENCE_MS)
        await page.evaluate("heard.getTracks()[0].dispatchEvent(new Event('ended'))")
        told = page.locator("#status[data-kind=error]", has_text="The microphone is gone.")
        await told.wait_for(timeout=PATIENCE_MS)
        assert await page.locator("#start").inner_text() == "Start"


async def test_a_busy_server_is_told_as_such():
    """No connection was lost: there never was one."""
    busy = ScriptedService(failure=SessionLimitError("1 of 1 sessions are taken", retry_after_ms=9))
    async with opened(busy) as (page, _, _):
        await page.locator("#start").click()
        told = page.locator("#status", has_text="1 of 1 sessions are taken; trying again…")
        await told.wait_for(timeout=PATIENCE_MS)
        busy.failure = None
        await page.locator("#status", has_text="Live").wait_for(timeout=PATIENCE_MS)


async def test_a_network_that_passes_nothing_on_is_a_lost_connection():
    """Nobody tells the page of it; it goes on once sound gets through again."""
    async with opened(ScriptedService()) as (page, sockets, _):
        async with open_proxy(urlsplit(page.url).netloc) as network:
            await page.goto(f"http://{network.address}/?to=de&autostart=1")
            live = page.locator("#status", has_text="Live")
            await live.wait_for(timeout=PATIENCE_MS)
            network.swallow()
            lost = page.locator("#status", has_text="The connection was lost; going on…")
            await lost.wait_for(timeout=PATIENCE_MS)
            network.release()
            await live.wait_for(timeout=PATIENCE_MS)
            await page.locator("#start").click()
            await wait_for_end(page)
        assert len(sockets) > 1


async def test_nobody_has_to_wait_for_the_last_words():
    """Whoever has stopped while the network is away may stop once more."""
    async with opened(ScriptedService()) as (page, _, _):
        async with open_proxy(urlsplit(page.url).netloc) as network:
            await page.goto(f"http://{network.address}/?to=de&autostart=1")
            await page.locator("#status", has_text="Live").wait_for(timeout=PATIENCE_MS)
            network.swallow()
            await page.locator("#start", has_text="Stop").click()
            await page.locator("#start", has_text="Do not wait").click()
            told = page.locator("#status[data-kind=error]", has_text="the last words may be")
            await told.wait_for(timeout=PATIENCE_MS)
            assert await page.locator("#start").inner_text() == "Start"


async def test_a_reader_notices_a_network_that_passes_nothing_on():
    """It tells so instead of showing old lines as live, and goes on when it can.

    While the network does pass something on, it hears that the gateway is there.
    """
    async with opened(ScriptedService([" gut"]), "?to=de&publish=hall") as (page, _, _):
        await page.locator("#start").click()
        await page.locator(".word").wait_for(timeout=PATIENCE_MS)
        async with open_proxy(urlsplit(page.url).netloc) as network:
            reader = await page.context.new_page()
            await reader.goto(f"http://{network.address}/?stream=hall")
            live = reader.locator("#status", has_text="Live")
            await live.wait_for(timeout=PATIENCE_MS)
            await reader.evaluate(
                """() => new Promise((heard) => {
                    const events = new EventSource("v1/streams/hall/events?alive=true");
                    events.addEventListener("alive", heard);
                })"""
            )
            network.swallow()
            waiting = reader.locator("#status", has_text="Waiting for the stream…")
            await waiting.wait_for(timeout=PATIENCE_MS)
            network.release()
            await live.wait_for(timeout=PATIENCE_MS)


async def test_sound_that_does_not_get_through_is_told():
    """A network may be too slow for it; the connection stays."""
    async with opened(ScriptedService()) as (page, sockets, _):
        await page.locator("#start").click()
        live = page.locator("#status", has_text="Live")
        await live.wait_for(timeout=PATIENCE_MS)
        await page.evaluate(
            """Object.defineProperty(
                WebSocket.prototype, "bufferedAmount", { get: () => window.waitingBytes }
            )"""
        )
        await page.evaluate("window.waitingBytes = 1e6")
        told = page.locator("#status[data-kind=error]", has_text="The sound waits")
        await told.wait_for(timeout=PATIENCE_MS)
        await page.evaluate("window.waitingBytes = 0")
        await live.wait_for(timeout=PATIENCE_MS)
        assert len(sockets) == 1


class Starting(ScriptedService):
    """Cannot answer yet when it is asked first."""

    is_up = False

    async def ListModels(self, request, context):
        if self.is_up:
            return await super().ListModels(request, context)
        self.is_up = True
        raise NotReadyError("the decoder is still loading its model")


async def test_a_page_that_was_opened_too_early_gets_ready():
    """Nobody has to reload it, least of all in OBS."""
    service = Starting([" gut"])
    async with opened(service, "?to=de&autostart=1") as (page, _, _):
        assert service.is_up
        await page.locator(".word").wait_for(timeout=PATIENCE_MS)


async def test_lines_run_as_their_script_does():
    """Or the full stop of an Arabic sentence would stand before it."""
    async with opened(ScriptedService()) as (page, _, _):
        directions = await page.evaluate(
            """async () => {
                const { Captions } = await import("./captions.js");
                const captions = new Captions(document.getElementById("captions"), {}, {});
                return [["ar", "أهلا بكم."], ["de", "Willkommen."]].map(([language, text]) => {
                    const column = captions.column(language);
                    column.addLine({ utterance: 0, text });
                    return getComputedStyle(column.line).direction;
                });
            }"""
        )
    assert directions == ["rtl", "ltr"]


async def test_two_lines_are_in_view_however_low_the_window_is():
    """A strip below a video, or a page at four times its size."""
    async with opened(ScriptedService()) as (page, _, _):
        await page.evaluate(
            """async () => {
                const { Captions } = await import("./captions.js");
                const main = document.getElementById("captions");
                window.column = new Captions(main, {}, {}).column("de");
                for (const utterance of [0, 1, 2]) column.addLine({ utterance, text: "viel" });
            }"""
        )
        for width, height, size in ((1280, 200, 28), (640, 360, 96), (320, 180, 96)):
            await page.set_viewport_size({"width": width, "height": height})
            lines_in_view = await page.evaluate(
                """(size) => {
                    document.documentElement.style.setProperty("--size", `${size}px`);
                    const lineHeight = parseFloat(getComputedStyle(column.line).lineHeight);
                    return column.lines.clientHeight / lineHeight;
                }""",
                size,
            )
            assert lines_in_view > 1.9


@pytest.mark.parametrize(("size", "shown"), [("48px", "48px"), ("huge", "28px")])
async def test_a_size_is_read_as_it_is_meant(size, shown):
    """With its unit, too; nonsense leaves the usual size."""
    async with opened(ScriptedService(), f"?to=de&size={size}") as (page, _, _):
        style = "getComputedStyle(document.documentElement).getPropertyValue('--size')"
        assert await page.evaluate(style) == shown


async def test_a_live_page_asks_before_it_is_left():
    """A slip of the hand would end the stream; a page that has ended has nothing to ask."""
    async with opened(ScriptedService([" gut"])) as (page, _, _):
        await page.locator("#start").click()
        await page.locator(".word").wait_for(timeout=PATIENCE_MS)
        async with page.expect_event("dialog", timeout=PATIENCE_MS) as asking:
            await page.close(run_before_unload=True)
        question = await asking.value
        assert question.type == "beforeunload"
        await question.dismiss()
        await page.locator("#start").click()
        await wait_for_end(page)
        asked = []
        page.on("dialog", lambda dialog: asked.append(dialog.type))
        await page.reload()
        assert asked == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_choices_can_be_read_in_both_schemes(scheme):
    """The browser's list is dark in the dark one, so both colours have to be given."""
    async with opened(ScriptedService()) as (page, _, _):
        await page.emulate_media(color_scheme=scheme)
        ink, ground = await page.locator("#source option").first.evaluate(
            """(option) => {
                const { color, backgroundColor } = getComputedStyle(option);
                return [color, backgroundColor].map((shown) => {
                    const [red, green, blue, alpha = 1] = shown.match(/[\\d.]+/g).map(Number);
                    return alpha && red + green + blue;
                });
            }"""
        )
    assert abs(ink - ground) > 500


async def test_a_reader_that_comes_back_keeps_what_it_shows():
    """It gets the last lines: what is new of them is added, and another stream replaces all."""
    async with opened(ScriptedService()) as (page, _, _):
        shown = await page.evaluate(
            """async () => {
                const { Captions } = await import("./captions.js");
                const main = document.getElementById("captions");
                const captions = new Captions(main, {}, {});
                const language = "de";
                const shown = () => [...main.querySelectorAll("p")].map((line) => line.textContent);
                for (const utterance of [0, 1, 2]) {
                    const said = { utterance, starts_word: true };
                    const words = [{ ...said, text: "Es" }, { ...said, text: "war" }];
                    captions.column(language).addWords(words, () => undefined);
                }
                captions.column(language).setTail("grau", 2);
                const first = main.querySelector("p");
                captions.catchUp([
                    { language, utterance: 1, text: "Es war" },
                    { language, utterance: 2, text: "Es war so." },
                    { language, utterance: 4, text: "Ja." },
                ]);
                captions.catchUp([{ language, utterance: 4, text: "Ja. Gut." }]);
                captions.column("es").setTail("gris", 0); // nothing is sure there yet
                captions.catchUp([{ language, utterance: 4, text: "Ja. Gut." }]);
                const kept = first.isConnected && shown();
                captions.catchUp([{ language, utterance: 4, text: "Neu." }]);
                return [kept, shown()];
            }"""
        )
    assert shown == [["Es war", "Es war", "Es war so.", "Ja. Gut.", " gris"], ["Neu."]]


async def test_people_of_a_call_have_columns_of_their_own():
    """Their languages say whose words they are."""
    async with opened(ScriptedService()) as (page, _, _):
        headings = await page.evaluate(
            """async () => {
                const { Captions } = await import("./captions.js");
                const main = document.getElementById("captions");
                const captions = new Captions(main, {}, {});
                captions.catchUp([
                    { language: "en-x-inbound", utterance: 0, text: "Hello?" },
                    { language: "de-x-outbound", utterance: 0, text: "Ja?" },
                ]);
                return [...main.querySelectorAll("h2")].map((heading) => heading.textContent);
            }"""
        )
    assert headings == ["English, inbound", "German, outbound"]


@pytest.mark.parametrize(("source", "marked"), [("de", True), ("en", False)])
async def test_unsure_words_are_marked_in_the_language_that_is_spoken(source, marked):
    """On a reader's page, too; how sure a model is of a translation tells less."""

    class Speaking(ScriptedService):
        def _start(self, config):
            begun = super()._start(config)
            begun.model.source_language_code = source
            return begun

        def _release(self, text):
            response = super()._release(text)
            response.committed.items[0].confidence = 0.4
            return response

    # More than are said before the reader has come.
    service = Speaking([" gut"] * 250)
    async with opened(service, "?to=de&publish=hall") as (page, _, _):
        await page.locator("#start").click()
        await page.locator(".word").first.wait_for(timeout=PATIENCE_MS)
        reader = await page.context.new_page()
        await reader.goto(page.url.partition("?")[0] + "?stream=hall")
        await reader.locator(".word").first.wait_for(timeout=PATIENCE_MS)
        await page.locator("#start").click()
        await wait_for_end(page)
        await reader.locator("#status", has_text="ended").wait_for(timeout=PATIENCE_MS)
        assert await page.locator(".unsure").count() == marked * len(service.words)
        assert (await reader.locator(".unsure").count() > 0) == marked
