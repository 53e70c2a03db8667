
// Figures are drawn when they come near the window; Plotly is unpacked once, after the page's texts are there.
const NARROW = matchMedia("(max-width: 640px)");
const CONFIG = {displaylogo: false, responsive: true, displayModeBar: false};
const figures = new Map();
let plotly = null;

function unpackedBytes(text) {
  const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;.=>?@^_`{|}~";
  const place = new Uint8Array(128);
  for (let at = 0; at < letters.length; at++) place[letters.charCodeAt(at)] = at;
  const bytes = new DataView(new ArrayBuffer(text.length / 5 * 4));
  for (let at = 0, to = 0; at < text.length; at += 5, to += 4) {
    let word = 0;
    for (let next = at; next < at + 5; next++) word = word * 85 + place[text.charCodeAt(next)];
    bytes.setUint32(to, word);
  }
  return bytes.buffer;
}

async function unpackPlotly() {
  const packed = document.getElementById("plotly");
  const bytes = unpackedBytes(packed.textContent).slice(0, Number(packed.dataset.bytes));
  packed.remove();
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const text = await new Response(stream).blob();
  const address = URL.createObjectURL(new Blob([text], {type: "text/javascript"}));
  await new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = address;
    script.onload = done;
    script.onerror = () => failed(new Error("Plotly's script cannot be loaded"));
    document.head.append(script);
  });
  URL.revokeObjectURL(address);
}

function laidOut(figure) {
  const layout = structuredClone(figure.layout);
  delete layout.updatemenus;
  const shown = {data: figure.data, layout};
  return NARROW.matches ? narrowed(shown) : shown;
}

async function draw(element) {
  const plot = element.querySelector(".plot");
  const state = figures.get(element);
  const {data, layout} = themed(laidOut(state.figure), isDark());
  plot.style.minHeight = `${layout.height}px`;
  await window.Plotly.react(plot, data, layout, CONFIG);
  if (!state.isDrawn) offerReset(element, plot);
  state.isDrawn = true;
  if (state.colouring) await recolour(element, state.colouring);
}

async function recolour(element, [change, traces]) {
  const plot = element.querySelector(".plot");
  const colours = change["marker.color"].map((colour) => inScheme(colour, "color", isDark()));
  await window.Plotly.restyle(plot, {...structuredClone(change), "marker.color": colours}, traces);
}

// A part of a figure is drawn larger by dragging over it; a button brings the whole back.
function offerReset(element, plot) {
  const button = document.createElement("button");
  Object.assign(button, {type: "button", textContent: "whole figure", hidden: true});
  element.querySelector(".tools").prepend(button);
  plot.on("plotly_relayout", (change) => { if (Object.keys(change).some((key) => key.includes(".range"))) button.hidden = false; });
  plot.on("plotly_doubleclick", () => { button.hidden = true; });
  button.addEventListener("click", () => { draw(element); button.hidden = true; });
}

// The figure's own buttons, as those of the page: a keyboard reaches them.
function choices(element, tools) {
  const state = figures.get(element);
  for (const menu of state.figure.layout.updatemenus ?? []) {
    const buttons = menu.buttons.map(({label, args}, number) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = label;
      button.setAttribute("aria-pressed", String(number === 0));
      button.addEventListener("click", async () => {
        buttons.forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
        state.colouring = args;
        await drawn(element);
        await recolour(element, args);
      });
      return button;
    });
    tools.append(...buttons);
  }
}

function drawn(element) {
  const state = figures.get(element);
  state.drawing ??= plotly.then(() => draw(element));
  return state.drawing;
}

async function redraw() {
  for (const [element, state] of figures) if (state.isDrawn) await draw(element);
}

function drawAll() {
  return Promise.all([...figures.keys()].map(drawn));
}

function startFigures() {
  const elements = [...document.querySelectorAll("figure.chart")];
  if (!elements.length) return Promise.resolve();
  if (typeof DecompressionStream === "undefined") {
    const notice = document.createElement("p");
    notice.className = "alerts";
    notice.textContent = "The figures of this page need a browser of 2023 or newer.";
    document.querySelector("main").prepend(notice);
    return Promise.resolve();
  }
  // A frame later: texts and tables are on the screen before Plotly takes its time.
  plotly = new Promise((done) => requestAnimationFrame(() => setTimeout(done))).then(unpackPlotly);
  for (const element of elements) {
    const figure = JSON.parse(element.querySelector("script").textContent);
    figures.set(element, {figure, isDrawn: false, drawing: null, colouring: null});
    const tools = document.createElement("div");
    tools.className = "tools";
    choices(element, tools);
    tools.append(exportButtons(element));
    element.insertBefore(tools, element.querySelector(".plot"));
  }
  const near = new IntersectionObserver((entries) => {
    for (const {isIntersecting, target} of entries) if (isIntersecting) { near.unobserve(target); drawn(target); }
  }, {rootMargin: "500px"});
  elements.forEach((element) => near.observe(element));
  NARROW.addEventListener("change", redraw);
  window.addEventListener("beforeprint", drawAll);
  const first = elements.filter((element) => element.getBoundingClientRect().top < innerHeight);
  return Promise.all(first.map(drawn));
}
