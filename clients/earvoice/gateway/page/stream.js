// One stream to the gateway. It goes on after a lost connection: what was sent is kept until the
// services need it no more, and each language's place comes with its events.

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 4000;
const TRIES = 12;
const LOUDEST_WAIT_BYTES = 4 << 20;
const LONGEST_SILENCE_S = 10; // the gateway says that it is there every three
const LATE_S = 3; // of sound that waits for the network
const GIVEN_UP = 4000; // a close code of our own: after a usual one the gateway expects nobody back

export class TranslationStream {
  // onLate is told when sound begins to wait for the network, and when it no longer does.
  constructor({ rateHz, languages, token = "", publish = "", marks, onEvent, onLost, onLate, onEnd }) {
    Object.assign(this, { rateHz, languages, token, publish, marks, onEvent, onLost, onLate, onEnd });
    this.chunks = []; // {start, samples: ArrayBuffer}, oldest first
    this.places = new Map(); // language -> {point, sample}
    this.placeless = new Set(); // languages whose last words came without a place
    this.nextSample = 0;
    this.tries = 0;
    this.hasEnded = false;
    this.open();
  }

  send(buffer) {
    const chunk = { start: this.nextSample, buffer };
    this.nextSample += buffer.byteLength / 2;
    this.chunks.push(chunk);
    if (this.isStarted && this.socket.bufferedAmount < LOUDEST_WAIT_BYTES) this.flush();
  }

  end() {
    this.hasEnded = true;
    if (this.isStarted) this.flush();
  }

  // Waits for no more words.
  close() {
    clearTimeout(this.comingBack);
    this.leave();
    this.socket.close(1000);
    this.onEnd("Stopped: the last words may be missing.");
  }

  open() {
    const base = location.href.replace(/^http/, "ws");
    this.socket = new WebSocket(new URL("v1/translate", base));
    this.waitsFor = new Set(this.languages);
    this.socket.onopen = () => this.socket.send(JSON.stringify(this.startMessage()));
    this.socket.onmessage = ({ data }) => {
      this.silence = 0;
      this.take(JSON.parse(data));
    };
    this.socket.onclose = (event) => this.lose(event);
    this.silence = 0; // seconds, counted: a page that is held up takes no messages, but counts nothing either
    this.isLate = false;
    this.watch = setInterval(() => this.look(), 1000);
  }

  // Nobody tells of a network that passes nothing on any more.
  look() {
    this.silence += 1;
    if (this.silence > LONGEST_SILENCE_S) {
      this.leave();
      this.socket.close(GIVEN_UP);
      return this.lose({ code: GIVEN_UP });
    }
    const isLate = this.socket.bufferedAmount > LATE_S * this.rateHz * 2;
    if (isLate !== this.isLate) this.onLate?.(isLate);
    this.isLate = isLate;
  }

  // Takes nothing more from the socket: its close may be told much later.
  leave() {
    clearInterval(this.watch);
    this.socket.onopen = this.socket.onmessage = this.socket.onclose = null;
  }

  startMessage() {
    const message = {
      type: "start",
      alive: true,
      config: {
        audioEncoding: "AUDIO_ENCODING_LINEAR16",
        sampleRateHertz: this.rateHz,
        targetLanguageCodes: this.languages,
        enableInterimResults: true,
      },
    };
    if (this.token) message.access_token = this.token;
    if (this.publish) Object.assign(message, { publish: this.publish, captions: this.marks });
    if (this.places.size) {
      message.resume = Object.fromEntries([...this.places].map(([name, { point }]) => [name, point]));
    }
    return message;
  }

  take(event) {
    if (event.type === "error") {
      this.failure = event;
      return;
    }
    if (event.type === "started") {
      this.waitsFor.delete(event.language);
      if (!this.waitsFor.size && !this.isStarted) {
        this.isStarted = true;
        this.unsent = this.firstNeededSample();
        this.flush();
      }
    }
    if (event.resume_point) {
      this.tries = 0;
      this.places.set(event.language, { point: event.resume_point, sample: event.acknowledged_samples });
      this.placeless.delete(event.language);
      this.forget();
    } else if (event.type === "words" || event.type === "utterance_end") {
      this.placeless.add(event.language); // from the place before, these words would come again
    }
    this.onEvent(event);
    if (event.type === "summary") this.summaries = (this.summaries ?? 0) + 1;
  }

  // Where the audio begins that the gateway wants: a language without a place begins anew.
  firstNeededSample() {
    if (this.places.size < this.languages.length) return 0;
    return Math.min(...[...this.places.values()].map(({ sample }) => sample));
  }

  flush() {
    for (const { start, buffer } of this.chunks) {
      const end = start + buffer.byteLength / 2;
      if (end <= this.unsent) continue;
      this.socket.send(start < this.unsent ? buffer.slice((this.unsent - start) * 2) : buffer);
      this.unsent = end;
    }
    if (this.hasEnded && !this.hasToldEnd) {
      this.hasToldEnd = true;
      this.socket.send(JSON.stringify({ type: "end" }));
    }
  }

  forget() {
    const needed = this.firstNeededSample();
    while (this.chunks.length && this.chunks[0].start + this.chunks[0].buffer.byteLength / 2 <= needed) {
      this.chunks.shift();
    }
  }

  lose(event) {
    clearInterval(this.watch);
    this.isStarted = this.hasToldEnd = false; // what comes meanwhile waits for the next socket
    if (this.summaries === this.languages.length) return this.onEnd(null);
    const mayPass = this.failure ? this.failure.advice !== "give up" : event.code !== 1008;
    if (!mayPass || this.placeless.size || this.tries >= TRIES) {
      return this.onEnd(this.failure?.message || event.reason || "The connection was lost.");
    }
    const asked = this.failure?.retry_after_ms ?? 0;
    const doubled = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.tries++);
    // Spread, so that not all pages come back at once.
    const pause = Math.max(doubled, asked) * (1 + Math.random() / 2);
    this.onLost(this.failure?.message);
    this.failure = undefined;
    this.summaries = 0;
    this.comingBack = setTimeout(() => this.open(), pause);
  }
}
