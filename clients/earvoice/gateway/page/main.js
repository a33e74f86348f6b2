// The page: ?stream=NAME reads a published stream, ?publish=NAME speaks into one, ?overlay=1 is the
// bar for OBS, ?token=… an access token, ?to=de,es the languages, ?mark_below=0.5 and ?not_understood=…
// what subtitles tell of words that may be wrong.

import { openFile, openMicrophone, openTab } from "./capture.js";
import { Captions, moved } from "./captions.js";
import { TranslationStream } from "./stream.js";

const parameters = new URLSearchParams(location.search);
const element = (id) => document.getElementById(id);
const marks = {
  mark_below: Number(parameters.get("mark_below") ?? 0),
  not_understood: parameters.get("not_understood") ?? "",
};
const token = parameters.get("token") ?? "";
const headers = token ? { Authorization: `Bearer ${token}` } : {};
const published = parameters.has("stream") ? `v1/streams/${encodeURIComponent(parameters.get("stream"))}` : "";
const captions = new Captions(element("captions"), marks, headers, published);
const lags = [];
const DEFAULT_SIZE = 28; // pixels
const RECENT_LAGS = 20;
const RETRY_PAUSE_MS = 2000;
const NEXT_STREAM_PAUSE_MS = 10_000;
const LONGEST_SILENCE_S = 15; // the gateway tells readers every five seconds that it is there
let source = null;
let stream = null;
let areOfRecording = false; // the captions: they are a recording's own, and count from its beginning
let areUnsaved = false;
let origin = null; // when the first sample of the captions came into being, see `begin`
let isStarting = false; // a sound is being opened: there is no stream yet

if (parameters.has("overlay")) document.documentElement.classList.add("overlay");
setSize(parseFloat(parameters.get("size") ?? remembered()?.getItem("size")) || DEFAULT_SIZE);

function say(text, kind = "") {
  element("status").textContent = text;
  element("status").dataset.kind = kind;
}

function setSize(pixels) {
  document.documentElement.style.setProperty("--size", `${pixels}px`);
  element("size").value = pixels;
  captions.follow();
}

// Whoever blocks a site's data gets an error for looking.
function remembered() {
  try {
    return localStorage;
  } catch {
    return null;
  }
}

function showEvent(event, lagOf) {
  if (event.type === "started") {
    captions.sourceLanguage = event.source_language;
  } else if (event.type === "words") {
    element("hint").hidden = true;
    areUnsaved = true;
    captions.column(event.language).addWords(event.words, (word) => {
      const lag = lagOf(word);
      if (lag !== undefined) lags.push(lag);
      return lag;
    });
    element("downloads").hidden = false;
    showLag();
  } else if (event.type === "tentative") {
    captions.column(event.language).setTail(event.text, event.utterance);
  } else if (event.type === "utterance_end" && event.not_understood) {
    captions.column(event.language).tellNotUnderstood(event);
  } else if (event.type === "reconnected") {
    say("Live", "live");
  }
}

function showLag() {
  const recent = lags.slice(-RECENT_LAGS);
  if (!recent.length) return;
  const mean = recent.reduce((sum, lag) => sum + lag, 0) / recent.length;
  element("lag").textContent = `${(mean / 1000).toFixed(1)} s behind the speaker`;
}

// Captions go on after a stop. A recording has captions of its own.
async function start(open, isRecording = false) {
  if (stream || isStarting) return;
  if (!isSecureContext) return say("The browser gives sound only to pages over https or from localhost.", "error");
  const languages = chosenLanguages();
  if (!languages.length) return say("Choose a language first.", "error");
  isStarting = true;
  element("start").disabled = true;
  say("Opening the sound…");
  try {
    source = await open();
  } catch (error) {
    element("start").disabled = false;
    const refused = error.name === "NotAllowedError" ? "The browser may not use this sound." : error.message;
    return say(refused, "error");
  } finally {
    isStarting = false;
  }
  if (isRecording || areOfRecording) {
    if (areUnsaved && !confirm("The captions have not been downloaded. Replace them?")) {
      finish();
      return say("Ready.");
    }
    captions.clear();
    origin = null;
    areUnsaved = false;
  }
  areOfRecording = isRecording;
  lags.length = 0;
  const spokenBefore = captions.nextUtterance;
  // When the first sample came into being, on performance.now()'s clock: no chunk is here before its
  // end, so the earliest tells. It may rise by 100 ppm, as sound cards drift.
  let begin = Infinity;
  let heard = 0; // ms
  let gone = null; // why there is no sound any more
  const { rateHz } = source;
  let later = null; // than the captions began, the stream did, in ms
  const lagOf = (word) => performance.now() - begin - word.source_end_ms + later;
  const opened = new TranslationStream({
    rateHz,
    languages,
    token,
    publish: parameters.get("publish") ?? "",
    marks,
    onEvent: (event) => {
      if (event.type === "started") say("Live", "live");
      if (later === null && heard) {
        origin ??= begin;
        later = begin - origin;
      }
      showEvent(moved(event, later, spokenBefore), lagOf);
    },
    onLate: (isLate) => source && (isLate
      ? say("The sound waits: the network or the server is slower than it.", "error")
      : say("Live", "live")),
    onLost: (why) => say(why ? `${why}; trying again…` : "The connection was lost; going on…", "error"),
    onEnd: (failure) => {
      finish();
      const wrong = failure ?? gone;
      say(wrong ?? "Ended.", wrong ? "error" : "");
    },
  });
  stream = opened;
  source.start((chunk) => {
    const length = (chunk.byteLength / 2 / rateHz) * 1000;
    heard += length;
    begin = Math.min(begin + length * 1e-4, performance.now() - heard);
    opened.send(chunk);
  }, (why = null) => {
    gone = why;
    stop();
  });
  showControls(true);
}

// The sound is over: what is left of the text still comes.
async function stop() {
  if (!source) return;
  const [sound, ending] = [source, stream];
  source = null;
  say("Finishing…");
  element("start").textContent = "Do not wait";
  await sound.stop();
  ending.end();
}

function finish() {
  source?.stop();
  source = null;
  stream = null;
  showControls(false);
}

// What a stream has begun with stays until its end.
function showControls(isRunning) {
  for (const control of element("controls").elements) control.disabled = isRunning;
  element("start").textContent = isRunning ? "Stop" : "Start";
  element("start").disabled = false;
}

function chosenLanguages() {
  return [...element("languages").querySelectorAll(":checked")].map(({ value }) => value);
}

async function offerLanguages() {
  const answer = await fetch("v1/models", { headers });
  const content = await answer.json();
  if (!answer.ok) {
    const isFinal = content.error.advice === "give up";
    throw Object.assign(new Error(content.error.message), { isFinal });
  }
  const wanted = parameters.get("to")?.split(",");
  const names = new Intl.DisplayNames(["en"], { type: "language" });
  content.models[0].target_languages.forEach((tag, index) => {
    const label = document.createElement("label");
    const box = Object.assign(document.createElement("input"), { type: "checkbox", value: tag });
    box.checked = wanted ? wanted.includes(tag) : index === 0;
    label.append(box, ` ${names.of(tag)}`);
    element("languages").append(label);
  });
}

function read(name) {
  document.body.classList.add("reader");
  element("stream-name").textContent = name;
  const address = new URL(`${published}/events`, location.href);
  const tags = parameters.get("to")?.split(",") ?? [];
  for (const tag of tags) address.searchParams.append("language", tag);
  address.searchParams.set("alive", "true");
  if (token) address.searchParams.set("access_token", token);
  listen(address, `${published}/captions.vtt${tags.length ? `?language=${encodeURIComponent(tags[0])}` : ""}`);
}

// An EventSource comes back after a lost connection, but gives up where the answer is an error: no
// stream of this name is on yet, or no longer, or it has no such language. After a stream's end the next
// one is waited for; the one that has ended is told again meanwhile, and stays as it is.
function listen(address, probe, isOver = false) {
  const events = new EventSource(address);
  let heldLines = null;
  let silence = 0; // seconds
  const watch = setInterval(() => {
    silence += 1;
    if (silence <= LONGEST_SILENCE_S) return;
    say("Waiting for the stream…");
    leave();
    listen(address, probe, isOver);
  }, 1000);
  const leave = () => {
    clearInterval(watch);
    events.close();
  };
  events.addEventListener("alive", () => { silence = 0; });
  events.onopen = () => {
    silence = 0;
    if (!isOver) say("Live", "live");
  };
  events.onerror = async () => {
    say("Waiting for the stream…");
    silence = 0; // the browser comes back by itself, or an error is read below
    if (events.readyState !== EventSource.CLOSED) return;
    leave();
    const answer = await fetch(probe, { headers }).catch(() => null);
    if (answer && [401, 403].includes(answer.status)) {
      say((await answer.json()).error.message);
    } else {
      if (answer?.status === 400) say((await answer.json()).error.message);
      setTimeout(() => listen(address, probe, isOver), RETRY_PAUSE_MS);
    }
  };
  events.onmessage = ({ data }) => {
    silence = 0;
    const event = JSON.parse(data);
    if (event.type === "end") {
      say("The stream has ended.");
      leave();
      // Spread, so that not all readers ask at once.
      setTimeout(() => listen(address, probe, true), NEXT_STREAM_PAUSE_MS * (1 + Math.random()));
    } else if (event.type === "lines" && isOver) {
      heldLines = event;
    } else if (event.type === "lines") {
      showLines(event);
    } else {
      if (heldLines) {
        say("Live", "live");
        showLines(heldLines);
      }
      isOver = false;
      heldLines = null;
      showEvent(event, () => undefined);
    }
  };
}

function showLines({ lines, source_language }) {
  captions.sourceLanguage = source_language;
  captions.catchUp(lines);
  if (lines.length) element("downloads").hidden = false;
}

async function download(format) {
  for (const language of captions.columns.keys()) {
    const text = await captions.export(language, format);
    const content = new Blob([text], { type: "text/plain;charset=utf-8" });
    const link = Object.assign(document.createElement("a"), {
      href: URL.createObjectURL(content),
      download: `captions.${language}.${format}`,
    });
    link.click();
    URL.revokeObjectURL(link.href);
  }
  areUnsaved = false;
}

element("controls").addEventListener("submit", (event) => {
  event.preventDefault();
  if (stream) return source ? stop() : stream.close();
  const kind = element("source").value;
  if (kind === "file") return element("file").click();
  return start(kind === "tab" ? openTab : openMicrophone);
});
element("file").addEventListener("change", ({ target }) => {
  const [file] = target.files;
  target.value = ""; // so that choosing the same one again is a change, too
  if (file) start(() => openFile(file, token), true);
});
element("size").addEventListener("input", ({ target }) => {
  setSize(target.value);
  remembered()?.setItem("size", target.value);
});
element("downloads").addEventListener("click", ({ target }) => {
  const { format } = target.dataset;
  if (format) download(format).catch((error) => say(error.message, "error"));
});
// Leaving the page ends the stream, for its readers, too.
addEventListener("beforeunload", (event) => stream && event.preventDefault());
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dropping");
});
document.addEventListener("dragleave", () => document.body.classList.remove("dropping"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  const file = event.dataTransfer.files[0];
  if (file) start(() => openFile(file, token), true);
});

// Whoever opens the page while the services still start need not reload it.
function offer() {
  offerLanguages().then(
    () => {
      element("start").disabled = false;
      say("Ready.");
      if (parameters.has("autostart")) start(openMicrophone);
    },
    (error) => {
      say(error.message, "error");
      if (!error.isFinal) setTimeout(offer, RETRY_PAUSE_MS);
    },
  );
}

if (published) {
  read(parameters.get("stream"));
} else {
  offer();
}
