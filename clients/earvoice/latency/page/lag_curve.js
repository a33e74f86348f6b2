const MOST_DOTS = 600;
const MEDIAN_WORDS = 9;
const LEAST_WORDS_OF_A_MEDIAN = 30;
const MINUTES_FROM_MS = 600_000;

function lagOf(word) {
  return word.elapsed_ms - word.source_end_ms;
}

function idealLagOf(word) {
  return word.delay_ms - word.source_end_ms;
}

/** Each word over the audio; of very many, their spread. */
function drawLag(session, labels) {
  const words = session.words;
  const { drawing, width, height } = canvas(
    byId("lag"), innerWidth < 700 ? 240 : 300, `Lag of ${plural(words.length, "word")} over the audio`,
  );
  const [left, right, top, bottom] = [46, 58, 14, 40];
  const [lowest, highest] = extremes(words.flatMap((word) => [lagOf(word), idealLagOf(word)]));
  const levels = ticks(Math.min(0, lowest), Math.max(highest, 100), 5);
  // One more, so that the highest word has a line above it.
  if (levels.at(-1) < highest) levels.push(2 * levels.at(-1) - levels.at(-2));
  const low = Math.min(0, lowest), high = levels.at(-1);
  const end = Math.max(session.audio_ms, extremes(words.map((word) => word.source_end_ms))[1]);
  const x = (ms) => left + (ms / end) * (width - left - right);
  const y = (ms) => top + ((high - ms) / (high - low || 1)) * (height - top - bottom);
  drawLagGrid(drawing, { levels, end, x, y, left, right, width, height, bottom });
  if (words.length > MOST_DOTS) drawBand(drawing, words, end, x, y);
  drawDots(drawing, session, x, y, labels);
  if (words.length >= LEAST_WORDS_OF_A_MEDIAN && words.length <= MOST_DOTS) {
    drawing.append(line(runningMedian(words), x, y, { stroke: "var(--accent)", "stroke-width": 2, opacity: 0.55 }));
  }
  const spread = session.word_lag_ms[session.clock];
  drawLevels(drawing, [["p95", spread.p95], ["p50", spread.p50]], y, left, width - right);
}

/** Says what the chart shows. */
function lagNote(words) {
  const slowest = "The ten slowest words are red.";
  if (words.length > MOST_DOTS) {
    return "The line is the median lag of neighbouring words, the band holds nine of ten of them, "
      + `and the grey line is the median without computation, queues and network. ${slowest}`;
  }
  return "A dot is a word. The stem below it is what computation, queues and network cost, down to the tick: "
    + `the lag without them. ${slowest}`
    + (words.length < LEAST_WORDS_OF_A_MEDIAN ? "" : ` The line is the median of ${MEDIAN_WORDS} neighbours.`);
}

function extremes(values) {
  return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}

function line(points, x, y, attributes) {
  const steps = points.map(([at, ms], i) => `${i ? "L" : "M"}${x(at).toFixed(1)} ${y(ms).toFixed(1)}`);
  return svg("path", { d: steps.join(""), fill: "none", "stroke-linejoin": "round", "pointer-events": "none", ...attributes });
}

function drawLagGrid(drawing, { levels, end, x, y, left, right, width, height, bottom }) {
  for (const level of levels) {
    drawing.append(
      svg("line", { x1: left, x2: width - right, y1: y(level), y2: y(level), class: level === 0 ? "axis" : "grid" }),
      svg("text", { x: left - 8, y: y(level) + 4, "text-anchor": "end" }, tidy(`${+(level / 1000).toFixed(2)} s`)),
    );
  }
  const [unit, unitMs] = end < MINUTES_FROM_MS ? ["seconds", 1000] : ["minutes", 60_000];
  for (const at of ticks(0, end / unitMs, width < 500 ? 4 : 9)) {
    drawing.append(svg("text", { x: x(at * unitMs), y: height - bottom + 18, "text-anchor": "middle" }, `${+at.toFixed(1)}`));
  }
  drawing.append(svg("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, `end of the word’s audio, in ${unit}`));
}

/** Dots at the lag with a stem down to the ideal lag; of very many words, the slowest only. */
function drawDots(drawing, session, x, y, labels) {
  const slow = new Set(session.slowest.map((word) => word.word));
  const isCrowded = session.words.length > MOST_DOTS;
  session.words.forEach((word, index) => {
    const isSlow = slow.has(index + 1);
    if (isCrowded && !isSlow) return;
    const [at, ideal, lag] = [x(word.source_end_ms), y(idealLagOf(word)), y(lagOf(word))];
    const group = svg("g", {},
      svg("rect", { x: at - 4, y: Math.min(ideal, lag) - 6, width: 8, height: Math.abs(ideal - lag) + 12, fill: "transparent" }),
      isCrowded ? null : svg("line", { x1: at, x2: at, y1: ideal, y2: lag, stroke: "var(--accent)", "stroke-opacity": 0.35, "stroke-width": 1.5 }),
      isCrowded ? null : svg("line", { x1: at - 3, x2: at + 3, y1: ideal, y2: ideal, stroke: "var(--soft)", "stroke-width": 1.5 }),
      svg("circle", { cx: at, cy: lag, r: isSlow ? 4.5 : 3, fill: isSlow ? "var(--previous_segment_wait)" : "var(--accent)" }),
    );
    drawing.append(tip(group, `Word ${index + 1}: ${milliseconds(lagOf(word))} late, ideally ${milliseconds(idealLagOf(word))}\n${stageLines(word.stages, labels)}`));
  });
}

function drawLevels(drawing, levels, y, left, right) {
  let above = -Infinity;
  for (const [name, ms] of levels) {
    const at = Math.max(y(ms), above + 28);
    above = at;
    drawing.append(
      svg("line", { x1: left, x2: right, y1: y(ms), y2: y(ms), class: "level" }),
      svg("text", { x: right + 6, y: at + 1, class: "strong" }, milliseconds(ms)),
      svg("text", { x: right + 6, y: at + 14 }, name),
    );
  }
}

/** Points of the median lag of neighbouring words, in the order of the audio. */
function runningMedian(words) {
  const ordered = [...words].sort((a, b) => a.source_end_ms - b.source_end_ms);
  const half = Math.floor(MEDIAN_WORDS / 2);
  return ordered.map((word, index) => {
    const near = ordered.slice(Math.max(0, index - half), index + half + 1).map(lagOf).sort((a, b) => a - b);
    return [word.source_end_ms, near[Math.floor(near.length / 2)]];
  });
}
