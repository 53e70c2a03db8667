// Search on pages that are opened as files. Browsers give such a page no worker, so what the site's search would run
// in one runs in a hidden frame. On a page that a server hands out nothing changes.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      frame.srcdoc = "<!doctype html>";
      this.inside = new Promise((ready, failed) => {
        frame.onload = () => {
          const inside = frame.contentWindow;
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = inside.document.createElement("script");
          script.src = new URL(url, location.href).href;
          script.onload = () => ready(inside);
          script.onerror = () => failed(new Error(`${script.src} cannot be read`));
          inside.document.head.append(script);
        };
      });
      document.body.append(frame);
    }

    postMessage(data) {
      this.inside.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
  };
  window.Worker = window.IFrameWorker;
}
