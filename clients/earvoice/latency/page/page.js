const CLOCKS = {
  live: "is the wall clock, up to the moment a word leaves the policy service.",
  true: "counts computation, each segment after the one before; queues and network are no part of it.",
};

function start() {
  const report = JSON.parse(byId("data").textContent);
  const state = { session: null, first: 0, marked: null };
  showProblems(report.problems);
  fillChoice(report.sessions, (index) => {
    Object.assign(state, { session: report.sessions[index], first: 0, marked: null });
    showSession(state);
  });
  if (!report.sessions.length) return;
  state.session = report.sessions[0];
  showSession(state);
  let width = innerWidth;
  addEventListener("resize", () => {
    // Scrolling on a phone changes the height only.
    if (innerWidth !== width) { width = innerWidth; showSession(state); }
  });
}

function showSession(state) {
  const session = state.session;
  showHead(session);
  showFigures(session);
  const hasWords = session.words.length > 0;
  byId("empty").hidden = hasWords;
  for (const id of ["lag-section", "stage-section", "slow-section"]) byId(id).hidden = !hasWords;
  const segmentNames = Object.keys(session.segments[0]?.stages || {});
  const labels = Object.fromEntries(session.stages.map((stage) => [stage.name, stage.label]));
  const show = (utterance, segment) => {
    const at = session.segments.findIndex((row) => row.utterance === utterance && row.segment === segment);
    if (at < 0) return;
    Object.assign(state, { marked: { utterance, segment }, first: Math.floor(at / ROWS_OF_A_PAGE) * ROWS_OF_A_PAGE });
    showSegments(state, segmentNames, labels);
    byId("segment-section").scrollIntoView({ behavior: "smooth", block: "start" });
  };
  if (hasWords) {
    showNotes(session);
    drawLag(session, labels);
    drawShares(session);
    drawStageTable(session);
    drawSlowest(session, session.stages.map((stage) => stage.name), show);
  }
  showSegments(state, segmentNames, labels);
}

function showSegments(state, names, labels) {
  byId("segment-section").hidden = !state.session.segments.length;
  const seen = names.filter((name) => state.session.segments.some((row) => row.stages[name] >= 0.5));
  byId("legend").replaceChildren(...seen.map((name) => html("span", {}, swatch(name), labels[name] || name)));
  drawPager(state.session, state.first, (first) => { state.first = first; showSegments(state, names, labels); });
  drawWaterfall(state.session, names, labels, state.first, state.marked);
}

function showHead(session) {
  const { source, target } = session.languages;
  byId("title").textContent = [target ? `${language(source)} to ${language(target)}` : "", session.policy.name]
    .filter(Boolean).join(" with ") || "One session";
  byId("facts").textContent = [
    session.model, session.segment_ms ? `segments of ${session.segment_ms} ms` : "",
    `${duration(session.audio_ms)} of audio`, plural(session.words.length, "word"), `session ${session.id}`,
    session.status === "OK" ? "" : session.status,
  ].filter(Boolean).join(" · ");
  byId("parameters").textContent = Object.entries(session.policy.parameters)
    .filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && !value.length))
    .map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`).join(" · ");
  byId("clock-name").textContent = capital(session.clock);
  byId("clock-text").textContent = CLOCKS[session.clock] || "";
}

/** The language's name, or its tag if the browser knows none. */
function language(tag) {
  try {
    return new Intl.DisplayNames("en", { type: "language" }).of(tag);
  } catch {
    return tag;
  }
}

function showFigures(session) {
  const lag = session.word_lag_ms[session.clock];
  const laal = session.laal_star_ms;
  const seconds = (ms) => (ms === null || ms === undefined ? ["–", ""] : [tidy((ms / 1000).toFixed(2)), "s"]);
  const factor = session.real_time_factor;
  const figures = [
    [seconds(lag?.p50), "median lag of a word"],
    [seconds(lag?.p95), "95 % of the words came sooner"],
    [seconds(laal[session.clock]), `LAAL*, ${session.clock} clock`],
    [seconds(laal.ideal), `LAAL*, ideal clock${typeof laal.true !== "number" || session.clock === "true" ? "" : `; ${(laal.true / 1000).toFixed(2)}${UNIT_SPACE}s on the true clock`}`],
    [[factor === null ? "–" : factor.toFixed(3), ""], "real-time factor: computation per audio"],
  ];
  byId("figures").replaceChildren(...figures.map(([[value, unit], name]) => html("div", {},
    html("dt", {}, name), html("dd", {}, value, unit ? html("small", {}, unit) : null))));
}

function showNotes(session) {
  const audio = session.stages.find((stage) => stage.name === "audio_wait").share;
  byId("lag-note").textContent = lagNote(session.words);
  byId("stage-note").textContent = `Of the mean lag, ${percent(audio)} is the policy’s choice to wait for audio. `
    + "The rest is the system’s, drawn larger below. The stages of each word add up to its lag.";
  byId("slow-title").textContent = session.slowest.length < 10 ? "The slowest words" : "The ten slowest words";
  const behind = session.segment_ms ? ` The red line is the length of a segment: longer bars fall behind the speaker.` : "";
  const isLive = session.clock === "live";
  const over = session.segments.some((row) => session.segment_ms && Math.max(totalOf(row), isLive ? row.duration_ms : 0) > session.segment_ms);
  byId("segment-note").textContent = "A bar begins when the last sample of its segment has arrived and ends when its words left."
    + (isLive ? " Dashes are work that went on afterwards." : "") + " Thin bars released no word." + (over ? behind : "");
}

function showProblems(problems) {
  byId("problems").hidden = !problems.length;
  if (problems.length) byId("problems").textContent = `Left out: ${problems[0]}${problems.length > 1 ? `, and ${problems.length - 1} more` : ""}`;
}

function fillChoice(sessions, choose) {
  const choice = byId("session");
  byId("choice").hidden = sessions.length < 2;
  byId("title").textContent = "No session";
  sessions.forEach((session, index) => {
    const text = `${session.id.slice(0, 12)}, ${duration(session.audio_ms)}, ${plural(session.words.length, "word")}`;
    choice.append(html("option", { value: index }, text));
  });
  choice.addEventListener("change", () => choose(Number(choice.value)));
}

start();
