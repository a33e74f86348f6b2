// Sound from a microphone, a tab or a recording, as chunks of 16-bit PCM in real time.

const CHUNK_MS = 100;
const HIGHEST_RATE_HZ = 48000;

export async function openMicrophone() {
  const constraints = { audio: { channelCount: 1, echoCancellation: false, noiseSuppression: false } };
  return fromStream(await navigator.mediaDevices.getUserMedia(constraints), "The microphone is gone.");
}

export async function openTab() {
  // Browsers give sound only together with a picture, which nobody looks at.
  const stream = await navigator.mediaDevices.getDisplayMedia({ video: true, audio: true });
  stream.getVideoTracks().forEach((track) => track.stop());
  if (!stream.getAudioTracks().length) throw new Error("The sound was not shared: tick “share audio”.");
  return fromStream(stream);
}

export async function openFile(file, token) {
  const context = newContext();
  return orClose(context, async () => {
    const recording = await context.decodeAudioData(await file.arrayBuffer())
      .catch(() => decodeElsewhere(file, token));
    const node = new AudioBufferSourceNode(context, { buffer: recording });
    node.connect(context.destination); // one hears what is captioned
    return capture(context, node, () => node.start(), (end) => { node.onended = () => end(); });
  });
}

// What this browser cannot read the gateway's ffmpeg may.
async function decodeElsewhere(file, token) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch("v1/audio", { method: "POST", body: file, headers });
  if (!answer.ok) throw new Error(`${file.name}: ${(await answer.json()).error.message}`);
  const samples = Float32Array.from(new Int16Array(await answer.arrayBuffer()), (sample) => sample / 32768);
  const recording = new AudioBuffer({ length: Math.max(1, samples.length), sampleRate: 16000 });
  recording.copyToChannel(samples, 0);
  return recording;
}

// gone: said when the sound ends by itself, if that is no usual end.
async function fromStream(stream, gone = null) {
  const tracks = stream.getTracks();
  const release = () => tracks.forEach((track) => track.stop());
  const context = await orClose(null, newContext, release);
  const source = await orClose(context, () => {
    const node = new MediaStreamAudioSourceNode(context, { mediaStream: stream });
    const onEnd = (end) => tracks.forEach((track) => track.addEventListener("ended", () => end(gone)));
    return capture(context, node, () => {}, onEnd);
  }, release);
  const stop = source.stop;
  source.stop = () => { release(); return stop(); };
  return source;
}

// What cannot be captured is not kept open, least of all a microphone.
async function orClose(context, open, release = () => {}) {
  try {
    return await open();
  } catch (error) {
    release();
    context?.close();
    throw error;
  }
}

function newContext() {
  const context = new AudioContext();
  if (context.sampleRate <= HIGHEST_RATE_HZ) return context;
  context.close();
  return new AudioContext({ sampleRate: HIGHEST_RATE_HZ });
}

async function capture(context, node, begin, onEnd) {
  await context.audioWorklet.addModule("recorder.js");
  const chunkSamples = Math.round((context.sampleRate * CHUNK_MS) / 1000);
  const recorder = new AudioWorkletNode(context, "recorder", {
    numberOfOutputs: 0, processorOptions: { chunkSamples },
  });
  node.connect(recorder);
  return {
    rateHz: context.sampleRate,
    start(onChunk, end) {
      recorder.port.onmessage = ({ data }) => onChunk(data);
      onEnd(end);
      context.resume();
      begin();
    },
    // Resolves when the last chunk has been handed over; a context that does not run has none.
    async stop() {
      if (context.state === "running") await new Promise((resolve) => {
        const { onmessage } = recorder.port;
        recorder.port.onmessage = (message) => (message.data ? onmessage?.(message) : resolve());
        recorder.port.postMessage(null);
      });
      recorder.port.onmessage = null;
      context.close();
    },
  };
}
