// Runs beside the page's own thread: collects samples and hands them over as 16-bit PCM.
class Recorder extends AudioWorkletProcessor {
  constructor(options) {
    super();
    this.samples = new Int16Array(options.processorOptions.chunkSamples);
    this.filled = 0;
    // Asked for the rest, it hands that over, and then nothing.
    this.port.onmessage = () => {
      this.hand();
      this.port.postMessage(null);
    };
  }

  hand() {
    if (this.filled) this.port.postMessage(this.samples.slice(0, this.filled).buffer);
    this.filled = 0;
  }

  process([channels]) {
    if (!channels.length) return true;
    const count = channels[0].length;
    for (let i = 0; i < count; i++) {
      let sum = 0;
      for (const channel of channels) sum += channel[i];
      const sample = Math.max(-1, Math.min(1, sum / channels.length));
      this.samples[this.filled++] = Math.round(sample * 32767);
      if (this.filled === this.samples.length) this.hand();
    }
    return true;
  }
}
registerProcessor("recorder", Recorder);
