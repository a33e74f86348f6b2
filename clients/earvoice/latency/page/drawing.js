"use strict";

// Keeps a number and its unit on one line.
const UNIT_SPACE = "\u00a0";

/** Builds an element; `children` are elements and texts. */
function html(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function byId(id) {
  return document.getElementById(id);
}

/** An empty drawing as wide as its place; one unit is one pixel. */
function canvas(place, height, label) {
  const width = Math.max(280, place.clientWidth);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  place.replaceChildren(drawing);
  return { drawing, width, height };
}

/** Round steps of an axis from 0, or below it, to the largest value. */
function ticks(lowest, highest, most) {
  const rough = (highest - lowest) / most || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const found = [];
  for (let at = Math.ceil(lowest / step); at * step <= highest + step * 1e-6; at += 1) found.push(at * step);
  return found;
}

function milliseconds(ms) {
  if (ms === null || ms === undefined) return "–";
  if (Math.abs(ms) >= 1000) return `${(ms / 1000).toFixed(2)}${UNIT_SPACE}s`;
  if (Math.abs(ms) < 0.05) return `0${UNIT_SPACE}ms`;
  return `${Math.abs(ms) < 9.95 ? tidy(ms.toFixed(1)) : tidy(ms.toFixed(0))}${UNIT_SPACE}ms`;
}

function tidy(text) {
  return /^-0(\.0+)?$/.test(text) ? text.slice(1) : text.replace("-", "−");
}

/** A position in the audio. */
function position(ms) {
  const seconds = ms / 1000;
  if (seconds < 600) return `${seconds.toFixed(1)}${UNIT_SPACE}s`;
  const minutes = Math.floor(seconds / 60);
  return `${minutes}:${(seconds - minutes * 60).toFixed(1).padStart(4, "0")}`;
}

/** A length of audio. */
function duration(ms) {
  if (ms < 600_000) return position(ms);
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)}${UNIT_SPACE}min ${seconds % 60}${UNIT_SPACE}s`;
}

function percent(share) {
  const value = share * 100;
  return `${tidy(value.toFixed(Math.abs(value) < 9.95 ? 1 : 0))}${UNIT_SPACE}%`;
}

function plural(count, noun) {
  return `${count}${UNIT_SPACE}${noun}${count === 1 ? "" : "s"}`;
}

function colour(stage) {
  return `var(--${stage})`;
}

function swatch(stage) {
  return html("span", { class: "swatch", style: `background:${colour(stage)}`, "aria-hidden": "true" });
}

/** Shows a text beside the pointer while it is on the element. */
function tip(element, text) {
  const box = byId("tip");
  element.addEventListener("pointermove", (event) => {
    box.textContent = text;
    box.hidden = false;
    const left = Math.min(event.pageX + 14, scrollX + innerWidth - box.offsetWidth - 8);
    box.style.left = `${Math.max(scrollX + 8, left)}px`;
    box.style.top = `${event.pageY + 16}px`;
  });
  element.addEventListener("pointerleave", () => { box.hidden = true; });
  return element;
}

/** Draws stages one after the other from x on; returns where they end. */
function stack(parent, names, stages, x, y, height, scale) {
  for (const name of names) {
    const width = Math.max(0, stages[name] || 0) * scale;
    // A hairline between neighbours; what is thinner than that is drawn all the same.
    if (width > 0.15) {
      const shown = Math.max(0.6, width - (width > 3 ? 1 : 0));
      parent.append(svg("rect", { x, y, width: shown, height, fill: colour(name) }));
    }
    x += width;
  }
  return x;
}

/** One line for each stage that took time, the longest first. */
function stageLines(stages, labels) {
  return Object.entries(stages)
    .filter(([, ms]) => Math.abs(ms) >= 0.05)
    .sort((a, b) => b[1] - a[1])
    .map(([name, ms]) => `${labels[name] || name}: ${milliseconds(ms)}`)
    .join("\n");
}
