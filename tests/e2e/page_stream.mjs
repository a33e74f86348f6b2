// The page's own stream outside of a browser: sends half of the audio, the rest when it is told to.
// Arguments: stream.js as a module, the gateway's host:port, a file of 16 kHz PCM, the folder of `ws`.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [module, gateway, file, packages] = process.argv.slice(2);
const NodeSocket = createRequire(`${packages}/`)("ws");
globalThis.WebSocket = class extends NodeSocket {
  constructor(address) {
    super(address);
    this.on("error", () => {}); // its close is told as well, as in a browser
  }
};
globalThis.location = { href: `http://${gateway}/` };
const { TranslationStream } = await import(module);

// The text must not depend on how fast this machine is.
class SteadyStream extends TranslationStream {
  startMessage() {
    const message = super.startMessage();
    message.config.catchUp = "CATCH_UP_EVERY_SEGMENT";
    return message;
  }
}

const CHUNK_BYTES = 3200;
const audio = readFileSync(file);
const half = CHUNK_BYTES * Math.floor(audio.length / CHUNK_BYTES / 2);
const tell = (content) => process.stdout.write(`${JSON.stringify(content)}\n`);
const stream = new SteadyStream({
  rateHz: 16000,
  languages: ["de"],
  onEvent: tell,
  onLost: () => tell({ type: "lost" }),
  onEnd: (failure) => {
    tell({ type: "over", failure });
    process.exit(0);
  },
});

function send(from, to) {
  for (let at = from; at < to; at += CHUNK_BYTES) {
    stream.send(new Uint8Array(audio.subarray(at, Math.min(at + CHUNK_BYTES, to))).buffer);
  }
}

send(0, half);
for await (const line of createInterface({ input: process.stdin })) {
  if (line === "break") stream.socket.terminate();
  if (line === "rest") {
    send(half, audio.length);
    stream.end();
  }
}
