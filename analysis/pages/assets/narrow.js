
// A figure on a narrow screen: panels that stood side by side stand one below the other.
function narrowed({data, layout}) {
  layout.margin = {...layout.margin, l: 8, r: 8};
  layout.font = {...layout.font, size: 11};
  layout.dragmode = false;
  const numbers = Object.keys(layout).filter((key) => /^xaxis\d*$/.test(key)).map((key) => key.slice(5));
  const panels = numbers.filter((number) => layout[`yaxis${number}`] && !layout[`yaxis${number}`].overlaying);
  const wide = ({domain = [0, 1]}) => domain[1] - domain[0] > 0.9;
  if (panels.length > 1 && panels.length === numbers.length && !panels.every((number) => wide(layout[`xaxis${number}`]))) {
    stack(layout, panels);
  }
  return {data, layout};
}

function stack(layout, panels) {
  const around = 110;
  const rows = new Set(panels.map((number) => (layout[`yaxis${number}`].domain ?? [0, 1])[0])).size;
  const height = Math.max(190, 0.62 * ((layout.height ?? 420) - around) / rows);
  const between = 88;
  const inner = panels.length * height + (panels.length - 1) * between;
  const title = layout.yaxis?.title;
  const before = panels.map((number) => ({x: layout[`xaxis${number}`].domain ?? [0, 1], y: layout[`yaxis${number}`].domain ?? [0, 1]}));
  panels.forEach((number, place) => {
    const top = 1 - place * (height + between) / inner;
    const [x, y] = [layout[`xaxis${number}`], layout[`yaxis${number}`]];
    x.domain = [0, 1];
    x.title ??= rows > 1 ? layout[`xaxis${panels[panels.length - 1]}`].title : x.title;
    x.showticklabels = true;
    y.domain = [Math.max(0, top - height / inner), Math.min(1, top)];
    y.showticklabels = true;
    if (title?.text && !y.title?.text) y.title = title;
    for (const note of layout.annotations ?? []) {
      const old = before[place];
      const isTitle = note.xref === "paper" && note.yref === "paper" && Math.abs(note.y - old.y[1]) < 1e-6
        && Math.abs(note.x - (old.x[0] + old.x[1]) / 2) < 1e-6 && !note.moved;
      if (isTitle) Object.assign(note, {x: 0, xanchor: "left", y: top, moved: true});
    }
  });
  layout.annotations?.forEach((note) => delete note.moved);
  layout.height = inner + around;
  layout.legend = {...layout.legend, y: 1 + 30 / inner};
}
