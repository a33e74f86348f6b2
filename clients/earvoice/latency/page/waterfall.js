const ROWS_OF_A_PAGE = 60;

/** A row for each segment, from the arrival of its last sample on. */
function drawWaterfall(session, names, labels, first, marked) {
  const rows = session.segments.slice(first, first + ROWS_OF_A_PAGE);
  const [left, right, top, step, bar] = [58, 66, 26, 15, 10];
  const { drawing, width, height } = canvas(
    byId("waterfall"), top + rows.length * step + 8, `Stages of ${plural(rows.length, "segment")}`,
  );
  const longest = Math.max(1, ...rows.map((row) => Math.max(totalOf(row), shownEnd(session, row))));
  const scale = (width - left - right) / longest;
  drawTimeGrid(drawing, { session, longest, scale, left, top, height, width, right });
  rows.forEach((row, index) => {
    const y = top + index * step;
    const group = svg("g", {});
    const isMarked = marked && row.utterance === marked.utterance && row.segment === marked.segment;
    group.append(svg("rect", { x: 0, y: y - 2, width, height: step, fill: isMarked ? "var(--faint)" : "transparent" }));
    if (row.segment === 1 && index > 0) group.append(svg("line", { x1: 0, x2: width, y1: y - 2.5, y2: y - 2.5, class: "axis" }));
    const thick = row.items ? bar : bar / 2;
    const end = stack(group, names, row.stages, left, y + (bar - thick) / 2, thick, scale);
    drawTail(group, session, row, end, y + (bar - thick) / 2, thick, scale, left);
    group.append(svg("text", { x: left - 8, y: y + 9, "text-anchor": "end" }, position(row.end_ms)));
    if (row.items || row.failed) {
      const at = Math.max(end, left + shownEnd(session, row) * scale) + 6;
      group.append(svg("text", { x: at, y: y + 9, class: "strong" }, row.failed ? "failed" : plural(row.items, "word")));
    }
    drawing.append(tip(group, tipOf(row, labels)));
  });
}

function totalOf(row) {
  return Object.values(row.stages).reduce((total, ms) => total + Math.max(0, ms), 0);
}

/** Work that went on after the words had left; the clock `true` does not place it. */
function shownEnd(session, row) {
  return session.clock === "live" ? row.duration_ms : 0;
}

function drawTail(parent, session, row, end, y, height, scale, left) {
  const width = left + shownEnd(session, row) * scale - end;
  if (width > 2) {
    parent.append(svg("rect", { x: end, y: y + 0.5, width, height: height - 1, fill: "none", stroke: "var(--rule)", "stroke-dasharray": "2 2" }));
  }
}

function drawTimeGrid(drawing, { session, longest, scale, left, top, height, width, right }) {
  for (const at of ticks(0, longest, width < 500 ? 3 : 7)) {
    const x = left + at * scale;
    drawing.append(
      svg("line", { x1: x, x2: x, y1: top - 6, y2: height - 6, class: at ? "grid" : "axis" }),
      svg("text", { x, y: 12, "text-anchor": "middle" }, at === 0 ? "0" : milliseconds(at).replace(/\.?0+(?=\s*s$)/, "")),
    );
  }
  if (session.segment_ms && session.segment_ms < longest) {
    const x = left + session.segment_ms * scale;
    drawing.append(svg("line", { x1: x, x2: x, y1: top - 6, y2: height - 6, stroke: "var(--previous_segment_wait)", "stroke-dasharray": "4 3" }));
  }
}

function tipOf(row, labels) {
  const merged = row.merged ? `, ${row.merged} merged into it` : "";
  return `Utterance ${row.utterance + 1}, segment ${row.segment}, up to ${position(row.end_ms)}${merged}\n`
    + `${plural(row.items, "word")} released, ${row.tokens_committed} of ${row.tokens_proposed} tokens committed\n`
    + stageLines(row.stages, labels);
}

/** Buttons for what does not fit onto one page. */
function drawPager(session, first, turn) {
  const last = Math.min(first + ROWS_OF_A_PAGE, session.segments.length);
  const button = (text, to, enabled) => {
    const made = html("button", { type: "button" }, text);
    made.disabled = !enabled;
    made.addEventListener("click", () => turn(to));
    return made;
  };
  byId("pager").hidden = session.segments.length <= ROWS_OF_A_PAGE;
  byId("pager").replaceChildren(
    button("Earlier", Math.max(0, first - ROWS_OF_A_PAGE), first > 0),
    `${first + 1} to ${last} of ${session.segments.length}`,
    button("Later", first + ROWS_OF_A_PAGE, last < session.segments.length),
  );
}
