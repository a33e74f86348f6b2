const MOST_STEPS_OF_A_BAND = 120;
const WORDS_OF_A_STEP = 25;

/** Median, and where nine of ten words lie, for each step of the audio. */
function drawBand(drawing, words, end, x, y) {
  const steps = stepsOf(words, end);
  const upper = steps.map((step) => [step.at, quantile(step.lags, 0.95)]);
  const lower = steps.map((step) => [step.at, quantile(step.lags, 0.05)]);
  const outline = [...upper, ...lower.reverse()];
  drawing.append(
    line(outline, x, y, { fill: "var(--accent)", "fill-opacity": 0.2 }),
    line(steps.map((step) => [step.at, quantile(step.ideal, 0.5)]), x, y, { stroke: "var(--soft)", "stroke-width": 1.25 }),
    line(steps.map((step) => [step.at, quantile(step.lags, 0.5)]), x, y, { stroke: "var(--accent)", "stroke-width": 2 }),
  );
}

/** Words by equal steps of the audio; silent steps are left out. */
function stepsOf(words, end) {
  const count = Math.min(MOST_STEPS_OF_A_BAND, Math.ceil(words.length / WORDS_OF_A_STEP));
  const steps = Array.from({ length: count }, (_, i) => (
    { at: ((i + 0.5) / count) * end, lags: [], ideal: [] }
  ));
  for (const word of words) {
    const place = Math.floor((word.source_end_ms / end) * count);
    const step = steps[Math.min(count - 1, Math.max(0, place))];
    step.lags.push(lagOf(word));
    step.ideal.push(idealLagOf(word));
  }
  const heard = steps.filter((step) => step.lags.length);
  for (const step of heard) {
    step.lags.sort((a, b) => a - b);
    step.ideal.sort((a, b) => a - b);
  }
  return heard;
}

function quantile(ordered, share) {
  return ordered[Math.round(share * (ordered.length - 1))];
}
