const OF_THE_AUDIO = ["audio_wait", "arrival_lateness"];

/** The mean lag as one bar, and below it the system's part as another, drawn larger. */
function drawShares(session) {
  const means = Object.fromEntries(session.stages.map((stage) => [stage.name, stage.mean]));
  const names = session.stages.map((stage) => stage.name);
  const inside = names.filter((name) => !OF_THE_AUDIO.includes(name));
  const sum = (list) => list.reduce((total, name) => total + Math.max(0, means[name]), 0);
  const [whole, system] = [sum(names), sum(inside)];
  const { drawing, width } = canvas(byId("shares"), 148, "Mean share of each stage in the lag of a word");
  const scale = width / (whole || 1);
  stack(drawing, names, means, 0, 22, 30, scale);
  const from = (whole - system) * scale;
  drawing.append(
    svg("text", { x: 0, y: 12 }, `waiting for audio ${milliseconds(whole - system)}`),
    svg("text", { x: width, y: 12, "text-anchor": "end", class: "strong" }, `the system ${milliseconds(system)}`),
    svg("path", { d: `M${from} 54 L${width} 54 L${width} 92 L0 92 Z`, fill: "var(--faint)", opacity: 0.7 }),
  );
  stack(drawing, inside, means, 0, 92, 30, width / (system || 1));
  nameBars(drawing, session, inside, means, width / (system || 1));
}

/** Writes the shares under the bars that are wide enough. */
function nameBars(drawing, session, names, means, scale) {
  let x = 0;
  for (const name of names) {
    const wide = Math.max(0, means[name]) * scale;
    const label = session.stages.find((stage) => stage.name === name).label;
    if (wide > label.length * 6.6) drawing.append(svg("text", { x, y: 138 }, label));
    x += wide;
  }
}

/** The stages that took time, with their percentiles; also what the colours mean. */
function drawStageTable(session) {
  const head = ["Stage", "Share", "p50", "p95", "p99", "Mean", "Longest"];
  const took = session.stages.filter((stage) => Math.abs(stage.max) >= 0.05 || Math.abs(stage.mean) >= 0.05);
  const none = session.stages.filter((stage) => !took.includes(stage)).map((stage) => stage.label);
  const rows = took.map((stage) => stageRow(stage, [swatch(stage.name), capital(stage.label)], stage.share));
  rows.push(stageRow(session.word_lag_ms[session.clock], ["Word lag"], 1, "total"));
  byId("stages").replaceChildren(
    html("thead", {}, html("tr", {}, ...head.map((name, i) => html("th", { scope: "col", class: i > 3 ? "wide" : null }, name)))),
    html("tbody", {}, ...rows),
  );
  byId("untouched").textContent = none.length ? `No time went by in: ${none.join(", ")}.` : "";
}

function stageRow(spread, label, share, kind = null) {
  const cells = [percent(share), ...[spread.p50, spread.p95, spread.p99, spread.mean, spread.max].map(milliseconds)];
  return html("tr", { class: kind }, html("th", { scope: "row" }, ...label),
    ...cells.map((text, i) => html("td", { class: i > 2 ? "wide" : null }, text)));
}

function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}
