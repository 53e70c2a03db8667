
// Tables sort by a column (a button in its head), and are filtered by words; all of them can be saved.
const FILTER_FROM = 8;

function sortKey(text) {
  const number = Number.parseFloat(text.replaceAll(",", "").replace(/^[^\d+\-.]+/, ""));
  return Number.isNaN(number) ? null : number;
}

function texts(row) {
  return [...row.cells].map((cell) => cell.innerText.trim().replace(/\s*\n\s*/g, " / "));
}

function sortBy(table, column, head) {
  const way = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
  table.querySelectorAll("th[aria-sort]").forEach((one) => one.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", way);
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => {
    const text = row.cells[column].firstChild?.textContent.trim() ?? "";
    return {row, text, key: sortKey(text)};
  });
  const numeric = rows.some(({key}) => key !== null) && rows.every(({key, text}) => key !== null || !/[\p{L}\d]/u.test(text));
  const sign = way === "ascending" ? 1 : -1;
  rows.sort((one, other) => {
    if (!numeric) return sign * one.text.localeCompare(other.text, "en", {numeric: true});
    if (one.key === null || other.key === null) return (one.key === null) - (other.key === null);
    return sign * (one.key - other.key);
  });
  body.append(...rows.map(({row}) => row));
}

function filterBy(table, wanted, shownRows) {
  const asked = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !asked.every((word) => text.includes(word));
    shown += !row.hidden;
  }
  shownRows.textContent = asked.length ? `${shown} of ${table.tBodies[0].rows.length} rows` : "";
}

function tableTools(table) {
  const title = table.caption.textContent;
  const tools = document.createElement("div");
  tools.className = "tools";
  if (table.tBodies[0].rows.length >= FILTER_FROM) {
    const input = document.createElement("input");
    const shownRows = document.createElement("span");
    Object.assign(input, {type: "search", placeholder: "filter rows"});
    input.setAttribute("aria-label", `${title}: filter rows`);
    shownRows.setAttribute("role", "status");
    input.addEventListener("input", () => filterBy(table, input.value, shownRows));
    tools.append(input, shownRows);
  }
  const box = document.createElement("span");
  const save = document.createElement("button");
  box.className = "right";
  Object.assign(save, {type: "button", textContent: "CSV"});
  save.setAttribute("aria-label", `${title}: save as CSV`);
  save.addEventListener("click", () => {
    const rows = [table.tHead.rows[table.tHead.rows.length - 1], ...table.tBodies[0].rows].map(texts);
    saveFile(new Blob([csvOf(rows)], {type: "text/csv"}), `${title.replace(/[^\w.-]+/g, "-").slice(0, 60)}.csv`);
  });
  box.append(save);
  tools.append(box);
  return tools;
}

function startTables() {
  for (const table of document.querySelectorAll("table[data-tools]")) {
    if (!table.tBodies[0].rows.length) continue;
    const heads = table.tHead.rows[table.tHead.rows.length - 1];
    [...heads.cells].forEach((head, column) => {
      if (head.tagName !== "TH") return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sortBy(table, column, head));
    });
    table.parentElement.before(tableTools(table));
  }
}
