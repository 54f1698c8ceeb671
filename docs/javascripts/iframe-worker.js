// The search runs in a worker, and browsers start no worker from a file on disk. There, run it in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #waiting = [];
    #frame = document.createElement("iframe");

    constructor(url) {
      super();
      this.#frame.hidden = true;
      document.body.appendChild(this.#frame);
      const inside = this.#frame.contentWindow;
      inside.postMessage = (data) => this.#deliver(this, data);
      inside.importScripts = (...urls) => urls.reduce((before, next) => before.then(() => this.#load(next)), Promise.resolve());
      this.#load(url).then(() => {
        const waiting = this.#waiting;
        this.#waiting = null;
        waiting.forEach((data) => this.#deliver(inside, data));
      });
    }

    postMessage(data) {
      if (this.#waiting) this.#waiting.push(data);
      else this.#deliver(this.#frame.contentWindow, data);
    }

    terminate() {
      this.#frame.remove();
    }

    #deliver(target, data) {
      const message = new MessageEvent("message", { data });
      target.dispatchEvent(message);
      if (target === this) this.onmessage?.(message);
    }

    #load(url) {
      return new Promise((resolve, reject) => {
        const script = this.#frame.contentDocument.createElement("script");
        script.src = new URL(url, location.href).href;
        script.onload = resolve;
        script.onerror = reject;
        this.#frame.contentDocument.body.appendChild(script);
      });
    }
  };
}
