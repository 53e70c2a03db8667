
// Every figure as PNG, as SVG, and its data as CSV; every table as CSV.
function exportButtons(element) {
  const box = document.createElement("span");
  box.className = "right";
  const title = element.dataset.title;
  for (const [format, save] of [["PNG", savePicture], ["SVG", savePicture], ["CSV", saveFigureData]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = format;
    button.setAttribute("aria-label", `${title}: save as ${format}`);
    button.addEventListener("click", () => save(element, format.toLowerCase()));
    box.append(button);
  }
  return box;
}

function saveFile(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Pictures are for paper: in light colours, whatever the page's are.
async function picture(element, format) {
  await plotly;
  const state = figures.get(element);
  const layout = structuredClone(state.figure.layout);
  delete layout.updatemenus;
  const {data, layout: light} = themed({data: state.figure.data, layout}, false);
  const address = await window.Plotly.toImage({data: structuredClone(data), layout: light}, {format, width: 1100, height: light.height ?? 420, scale: format === "png" ? 2 : 1});
  if (format === "svg") return new Blob([decodeURIComponent(address.slice(address.indexOf(",") + 1))], {type: "image/svg+xml"});
  const letters = atob(address.slice(address.indexOf(",") + 1));
  return new Blob([Uint8Array.from(letters, (letter) => letter.charCodeAt(0))], {type: "image/png"});
}

async function savePicture(element, format) {
  saveFile(await picture(element, format), `${element.dataset.name}.${format}`);
}

function saveFigureData(element) {
  saveFile(new Blob([csvOf(figureRows(figures.get(element).figure))], {type: "text/csv"}), `${element.dataset.name}.csv`);
}

// A cell that a spreadsheet would take for a formula begins with an apostrophe.
function csvOf(rows) {
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    let text = String(value);
    if (typeof value !== "number" && /^[=+\-@\t\r]/.test(text) && !/^[+-]?[\d.,]+%?$/.test(text) && text !== "-") text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

const ARRAYS = {f8: Float64Array, f4: Float32Array, i4: Int32Array, i2: Int16Array, i1: Int8Array, u4: Uint32Array, u2: Uint16Array, u1: Uint8Array};

// Plotly's arrays may be packed: bytes, their type, and the shape.
function plain(value) {
  if (!value?.bdata) return value;
  const bytes = Uint8Array.from(atob(value.bdata), (letter) => letter.charCodeAt(0));
  const flat = [...new ARRAYS[value.dtype](bytes.buffer)];
  const [rows, columns] = String(value.shape ?? "").split(",").map(Number);
  return columns ? Array.from({length: rows}, (_, row) => flat.slice(row * columns, (row + 1) * columns)) : flat;
}

function words(text) {
  return typeof text !== "string" ? text : text.replace(/<br>/g, "; ").replace(/<[^>]*>/g, "").replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
}

function figureRows({data, layout}) {
  const title = (axis, name, fallback) => words(layout[(axis ?? name).replace(/^([xy])/, "$1axis")]?.title?.text) || fallback;
  const found = data.filter((trace) => trace.visible !== false && trace.hoverinfo !== "skip");
  const axes = (trace) => [title(trace.xaxis, "x", "x"), title(trace.yaxis, "y", "y")];
  const names = new Set();
  const rows = [];
  const add = (row) => { Object.keys(row).forEach((name) => names.add(name)); rows.push(row); };
  for (const trace of found) {
    const [xName, yName] = axes(trace);
    const series = words(trace.name ?? "");
    const [x, y, z, base] = [trace.x, trace.y, trace.z, trace.base].map(plain);
    const texts = [plain(trace.customdata), plain(trace.text)].filter(Array.isArray);
    const label = (at) => texts.map((list) => words(Array.isArray(list[at]) ? list[at].join("; ") : list[at]))[0];
    if (Array.isArray(z)) {
      z.forEach((line, row) => line.forEach((value, column) => add({
        [xName]: x?.[column] ?? (trace.x0 ?? 0) + column * (trace.dx ?? 1),
        [yName]: words(plain(trace.customdata)?.[row]?.[column]) ?? y?.[row] ?? (trace.y0 ?? 0) + row * (trace.dy ?? 1),
        value,
      })));
    } else {
      const count = Math.max(x?.length ?? 0, y?.length ?? 0);
      for (let at = 0; at < count; at++) {
        const row = series ? {series} : {};
        if (Array.isArray(base)) Object.assign(row, {[`${xName}, from`]: base[at], [`${xName}, length`]: x[at], row: y[at]});
        else Object.assign(row, {[xName]: words(x?.[at] ?? at), [yName]: words(y?.[at] ?? at)});
        if (label(at) !== undefined) row.what = label(at);
        add(row);
      }
    }
  }
  const columns = [...names];
  return [columns, ...rows.map((row) => columns.map((name) => row[name]))];
}
