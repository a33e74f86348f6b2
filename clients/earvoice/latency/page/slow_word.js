/** The slowest words as a table: how late, where, why; a press on one shows its segment. */
function drawSlowest(session, names, show) {
  const longest = Math.max(...session.slowest.map((word) => word.lag_ms), 1);
  const rows = session.slowest.map((word) => html("tr", {},
    html("td", { class: "lag" }, milliseconds(word.lag_ms)),
    html("td", { class: "where" }, segmentButton(word, show), html("br"), `at ${position(word.source_end_ms)}`),
    html("td", { class: "bar" }, lagBar(word, names, longest)),
    html("td", { class: "cause" }, `${capital(word.cause.text)}: ${milliseconds(word.cause.ms)}`,
      html("small", {}, `${word.cause.label}, usually ${milliseconds(word.cause.usual_ms)}`)),
  ));
  byId("slowest").replaceChildren(
    html("thead", {}, html("tr", {}, ...["Lag", "Word", "Its time", "Cause"].map((name) => html("th", { scope: "col", class: name === "Its time" ? "bar" : null }, name)))),
    html("tbody", {}, ...rows),
  );
}

function segmentButton(word, show) {
  const button = html("button", { type: "button", title: "show its segment" }, `word ${word.word}`);
  button.addEventListener("click", () => show(word.utterance, word.segment));
  return button;
}

function lagBar(word, names, longest) {
  const drawing = svg("svg", { viewBox: "0 0 400 12", preserveAspectRatio: "none", height: 12, width: "100%", role: "img",
    "aria-label": `${milliseconds(word.lag_ms)}, most of it above the usual: ${word.cause.label}` });
  stack(drawing, names, word.stages, 0, 0, 12, 400 / longest);
  return drawing;
}
