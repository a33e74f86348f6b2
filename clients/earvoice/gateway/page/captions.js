// Captions on the page: committed words are added and never touched again; only the tail changes.

const KEPT_LINES = 400;
const NEAR_PIXELS = 40; // who is so close to the newest line wants to see it
const UNSURE = 0.5; // such a word is as likely wrong as right, in the speaker's language

// An event of a stream, in captions that another stream has begun: so much later, and after its utterances.
export function moved(event, laterMs, utterances) {
  const move = (part, ...times) => {
    const own = { ...part };
    if (own.utterance !== undefined) own.utterance += utterances;
    for (const time of times) own[time] += laterMs;
    return own;
  };
  const own = move(event);
  if (event.words) own.words = event.words.map((word) => move(word, "source_start_ms", "source_end_ms", "elapsed_ms"));
  if (event.not_understood) own.not_understood = move(event.not_understood, "start_ms", "end_ms");
  return own;
}

export class Captions {
  // marks: what files tell of words that may be wrong, as the gateway takes it; headers: of requests;
  // stream: path of the published stream that is read, if one is.
  constructor(container, marks, headers, stream = "") {
    Object.assign(this, { container, marks, headers, stream });
    this.columns = new Map();
    this.sourceLanguage = "";
  }

  // Whether a language is the speaker's: how sure a model is of a translation tells less.
  isSpoken(language) {
    return language.split("-")[0] === this.sourceLanguage.split("-")[0];
  }

  column(language) {
    if (!this.columns.has(language)) this.columns.set(language, new Column(this, language));
    return this.columns.get(language);
  }

  // After a change of size: lines that were at the end of a column still are.
  follow() {
    for (const column of this.columns.values()) column.follow();
  }

  // The first that no column has begun.
  get nextUtterance() {
    return 1 + Math.max(-1, ...[...this.columns.values()].map(({ utterance }) => utterance));
  }

  clear() {
    this.columns.clear();
    this.container.replaceChildren();
  }

  // The last lines, which a reader gets each time it connects: what is here of the same stream stays.
  catchUp(lines) {
    const columns = [...this.columns.values()];
    const isHere = (column) => column.spoken.utterance < 0 || lines.some((line) => column.endsWithin(line));
    if (!columns.every(isHere)) this.clear();
    lines.forEach((line) => this.column(line.language).addLine(line));
  }

  // SRT, VTT or plain text of one language; cues are the gateway's work.
  async export(language, format) {
    const { words, utterances } = this.columns.get(language);
    if (this.stream) {
      // Of a stream the page lacks words that came while it was not connected; what the gateway has
      // may be forgotten some time after the end, or be the next stream's, which has no words yet.
      const form = format === "txt" ? "srt" : format;
      const address = `${this.stream}/captions.${form}?language=${encodeURIComponent(language)}`;
      const answer = await fetch(address, { headers: this.headers });
      const whole = answer.ok ? await answer.text() : "";
      if (whole.includes("-->")) return format === "txt" ? textOf(whole) : whole;
      if (!words.length) throw new Error("The gateway has no words of this stream any more.");
    }
    if (format === "txt") return `${words.reduce(joinLines(words), "").trim()}\n`;
    const answer = await fetch(`v1/captions.${format}`, {
      method: "POST", headers: this.headers, body: JSON.stringify({ words, utterances, captions: this.marks }),
    });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    return answer.text();
  }
}

class Column {
  constructor(captions, language) {
    this.captions = captions;
    const section = document.createElement("section");
    section.className = "language";
    section.dataset.language = this.language = language;
    const heading = document.createElement("h2");
    const [tag, person] = language.split("-x-"); // whose words they are, where several are heard
    const name = new Intl.DisplayNames(["en"], { type: "language" }).of(tag);
    heading.textContent = [name, person].filter(Boolean).join(", ");
    this.lines = document.createElement("div");
    this.lines.className = "lines";
    this.lines.setAttribute("role", "log");
    this.lines.setAttribute("aria-live", "polite");
    this.lines.setAttribute("aria-label", `Captions, ${heading.textContent}`);
    this.lines.tabIndex = 0; // so that keys reach earlier lines
    this.isFollowing = true;
    this.lines.addEventListener("scroll", () => {
      const { scrollTop, scrollHeight, clientHeight } = this.lines;
      this.isFollowing = scrollHeight - scrollTop - clientHeight < NEAR_PIXELS;
    });
    new ResizeObserver(() => this.follow()).observe(this.lines);
    section.append(heading, this.lines);
    captions.container.append(section);
    this.tail = document.createElement("span");
    this.tail.className = "tentative";
    this.tail.setAttribute("aria-hidden", "true"); // read aloud once it is sure
    this.words = [];
    this.utterances = []; // those that were not understood
    this.utterance = -1;
    this.spoken = { utterance: -1, text: "" }; // the last one with words
  }

  addWords(words, lagOf) {
    for (const word of words) {
      if (word.utterance !== this.utterance) this.beginLine(word.utterance);
      const span = document.createElement("span");
      span.className = "word";
      span.textContent = word.text;
      const lag = lagOf(word);
      if (lag !== undefined) {
        span.dataset.lagMs = Math.round(lag);
        span.dataset.serviceLagMs = Math.round(word.elapsed_ms - word.source_end_ms);
        span.title = `${(lag / 1000).toFixed(1)} s after its sound`;
      }
      if (word.confidence < UNSURE && this.captions.isSpoken(this.language)) {
        span.classList.add("unsure");
        span.title = [span.title, `${Math.round(word.confidence * 100)} % sure`].filter(Boolean).join(", ");
      }
      this.tail.remove();
      if (word.starts_word && this.line.childNodes.length) this.line.append(" ");
      this.line.append(span);
      this.words.push(word);
      this.note(word.utterance, `${word.starts_word ? " " : ""}${word.text}`);
    }
    this.tail.textContent = "";
    this.follow();
  }

  setTail(text, utterance) {
    if (utterance !== this.utterance) this.beginLine(utterance);
    this.tail.textContent = text ? ` ${text}` : "";
    this.line.append(this.tail);
    this.follow();
  }

  // Something was said; nobody is told words that nobody said.
  tellNotUnderstood(end) {
    this.utterances.push(end);
    this.beginLine(end.utterance);
    const note = document.createElement("span");
    note.className = "not-understood";
    note.textContent = "[not understood]";
    this.line.append(note);
    this.follow();
  }

  // Whether a line of the gateway's is the one that ends here, perhaps longer by now.
  endsWithin({ language, utterance, text }) {
    const { spoken } = this;
    return language === this.language && utterance === spoken.utterance && text.startsWith(spoken.text);
  }

  // A line only grows: of one that is here already its rest is new.
  addLine({ utterance, text }) {
    const rest = utterance === this.spoken.utterance ? text.slice(this.spoken.text.length) : text;
    if (utterance < this.spoken.utterance || !rest) return;
    if (utterance !== this.utterance) this.beginLine(utterance);
    this.tail.remove();
    const span = document.createElement("span");
    span.className = "word";
    span.textContent = rest;
    this.line.append(span);
    this.note(utterance, rest);
    this.follow();
  }

  note(utterance, text) {
    const before = utterance === this.spoken.utterance ? this.spoken.text : "";
    this.spoken = { utterance, text: before ? before + text : text.trimStart() };
  }

  beginLine(utterance) {
    this.tail.remove();
    this.utterance = utterance;
    if (this.line && !this.line.childNodes.length) return;
    this.line = document.createElement("p");
    this.line.lang = this.language; // the heading and its label are in the page's own
    this.line.dir = "auto"; // Arabic and Hebrew run from the right
    this.lines.append(this.line);
    while (this.lines.childNodes.length > KEPT_LINES) this.lines.firstChild.remove();
  }

  // Stay at the newest line, unless the reader has scrolled up to an older one.
  follow() {
    if (this.isFollowing) this.lines.scrollTop = this.lines.scrollHeight;
  }
}

// The text of an SRT file, a line a cue; Chinese and Japanese have no blanks where a cue's line ends.
function textOf(srt) {
  const joined = (lines) => lines.join(" ").replace(/([\u3000-\u9fff\uff00-\uffef]) (?=[\u3000-\u9fff\uff00-\uffef])/g, "$1");
  return srt.split("\n\n").map((cue) => joined(cue.split("\n").slice(2))).join("\n");
}

function joinLines(words) {
  return (text, _, index) => {
    const word = words[index];
    const before = index && words[index - 1].utterance !== word.utterance ? "\n" : word.starts_word ? " " : "";
    return text + before + word.text;
  };
}
