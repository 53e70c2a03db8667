
// Light and dark: the page's colours are CSS; those of the figures are given their twins here.
const DARK = {
  "#FFFFFF": "#12181E", "#1F2933": "#E6EBEF", "#55616A": "#A7B3BC", "#5F6B73": "#A7B3BC",
  "#E3E8EC": "#2F3A43", "#8A969F": "#8A969F", "#B00020": "#FF8A80",
  "RGBA(255,255,255,0.45)": "rgba(18,24,30,0.45)",
  // from nothing to full: dark paper begins dark
  "#F7F9FA": "#1A222A", "#DCE9F3": "#1D3A52", "#9CC3E3": "#2C6796", "#4C8DC6": "#57A3DA", "#0B3C66": "#CFE8F9",
  "#F6D9A8": "#5C2E00", "#E8A317": "#A85200", "#CC5A06": "#E69F00", "#5A1E00": "#FFE3B0", "#8A2B00": "#F3C3A8",
};
const systemScheme = matchMedia("(prefers-color-scheme: dark)");
const SCHEMES = ["system", "light", "dark"];
const SCHEME_NAMES = {system: "as the system", light: "light", dark: "dark"};
let chosenScheme = "system";

function isDark() {
  return chosenScheme === "system" ? systemScheme.matches : chosenScheme === "dark";
}

function inScheme(value, key, dark) {
  if (!dark) return value;
  if (typeof value === "string") return /colou?r/.test(key) ? DARK[value.toUpperCase()] ?? value : value;
  if (Array.isArray(value)) return /colou?r/.test(key) ? value.map((one) => inScheme(one, key, dark)) : value;
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, inScheme(one, name, dark)]));
}

function themed(figure, dark) {
  const layout = inScheme(figure.layout, "", dark);
  for (const list of ["annotations", "shapes"]) {
    if (figure.layout[list]) layout[list] = figure.layout[list].map((one) => inScheme(one, "", dark));
  }
  const paper = dark ? "#12181E" : "#FFFFFF";
  layout.hoverlabel = {...layout.hoverlabel, bgcolor: dark ? "#26313A" : "#FFFFFF", bordercolor: dark ? "#A7B3BC" : "#55616A",
    font: {...layout.hoverlabel?.font, color: dark ? "#E6EBEF" : "#1F2933"}};
  return {data: figure.data.map((trace) => inScheme(trace, "", dark)), layout: {paper_bgcolor: paper, plot_bgcolor: paper, ...layout}};
}

function startScheme() {
  const button = document.getElementById("scheme");
  const root = document.documentElement;
  try { chosenScheme = localStorage.getItem("osub-scheme") || "system"; } catch { /* a page from a file may have no storage */ }
  if (!SCHEMES.includes(chosenScheme)) chosenScheme = "system";
  const show = () => {
    if (chosenScheme === "system") delete root.dataset.scheme;
    else root.dataset.scheme = chosenScheme;
    button.textContent = `Colours: ${SCHEME_NAMES[chosenScheme]}`;
  };
  button.addEventListener("click", () => {
    chosenScheme = SCHEMES[(SCHEMES.indexOf(chosenScheme) + 1) % SCHEMES.length];
    try { localStorage.setItem("osub-scheme", chosenScheme); } catch { /* as above */ }
    show();
    redraw();
  });
  systemScheme.addEventListener("change", redraw);
  button.hidden = false;
  show();
}
