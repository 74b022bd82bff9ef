/**
 * A table body that is kept equal to a list of records.
 *
 * Rows are kept by key and only cells that changed are touched, so a selection, a scroll position or a screen reader's
 * place survives the update of every second. Text goes in by textContent only: nothing from the wire becomes markup.
 */

export class LiveTable {
  /** columns: [{ class?, text(record), title?(record) } | { class?, draw(cell, record) }]; key(record) is unique in the list. */
  constructor(id, key, columns) {
    this.body = document.querySelector(`#${id} tbody`);
    this.frame = document.querySelector(`#${id}`);
    this.empty = document.getElementById(`${id}-empty`);
    this.error = document.getElementById(`${id}-error`);
    this.key = key;
    this.columns = columns;
    this.rows = new Map();
  }

  show(records) {
    this.error.textContent = "";
    this.frame.hidden = records.length === 0;
    this.empty.hidden = records.length > 0;
    const kept = new Set(records.map(this.key));
    for (const [key, row] of this.rows) {
      if (!kept.has(key)) {
        row.remove();
        this.rows.delete(key);
      }
    }
    records.forEach((record, position) => this.place(record, position));
  }

  /** Say what failed; the figures shown last stay. */
  fail(message) {
    this.error.textContent = message;
  }

  place(record, position) {
    const key = this.key(record);
    let row = this.rows.get(key);
    if (!row) {
      row = this.newRow(key);
    }
    if (this.body.children[position] !== row) {
      this.body.insertBefore(row, this.body.children[position] ?? null);
    }
    this.columns.forEach((column, index) => fill(row.cells[index], column, record));
  }

  newRow(key) {
    const row = document.createElement("tr");
    row.dataset.key = key;
    for (const column of this.columns) {
      const cell = row.insertCell();
      if (column.class) cell.className = column.class;
    }
    this.rows.set(key, row);
    return row;
  }
}

function fill(cell, column, record) {
  if (column.draw) {
    column.draw(cell, record);
    return;
  }
  const text = column.text(record);
  if (cell.textContent !== text) cell.textContent = text;
  if (column.title) cell.title = column.title(record);
}

/** A column that shows a short word as a coloured tag; tone(record) is good, warn, bad or empty. */
export function tag(text, tone) {
  return {
    draw(cell, record) {
      const label = cell.firstChild ?? cell.appendChild(document.createElement("span"));
      label.className = "tag";
      label.dataset.tone = tone(record);
      const word = text(record);
      if (label.textContent !== word) label.textContent = word;
    },
  };
}

/** A column that shows a share from 0 to 1 as a bar, with a mark for a second share. */
export function bar(value, mark, label) {
  return {
    draw(cell, record) {
      const box = cell.firstChild ?? cell.appendChild(newBar());
      box.setAttribute("aria-label", label(record));
      box.children[0].style.width = `${clamp(value(record)) * 100}%`;
      box.children[1].style.left = `${clamp(mark(record)) * 100}%`;
    },
  };
}

function newBar() {
  const box = document.createElement("div");
  box.className = "bar";
  box.setAttribute("role", "img");
  box.append(document.createElement("i"), document.createElement("b"));
  return box;
}

function clamp(value) {
  return Math.min(1, Math.max(0, value ?? 0));
}
