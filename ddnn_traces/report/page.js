'use strict';
const root = document.documentElement;

// Colours: those of the system until the button is pressed; nothing is stored. page.css defines the dark colours,
// also those of charts: an SVG in the page is styled like the rest of it, so that a change needs no drawing.
const button = document.getElementById('theme');
const systemIsDark = matchMedia('(prefers-color-scheme: dark)');
const isDark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : systemIsDark.matches);
const label = () => { button.textContent = isDark() ? 'Light colours' : 'Dark colours'; };
button.addEventListener('click', () => { root.dataset.theme = isDark() ? 'light' : 'dark'; label(); });
systemIsDark.addEventListener('change', label);
button.hidden = false;
label();

// Contents: next to the text where the window is wide, else closed above it.
const contents = document.getElementById('index');
const isWide = matchMedia('(min-width: 1200px)');
const fold = () => { contents.open = isWide.matches; };
isWide.addEventListener('change', fold);
fold();

// The SQL of the queries, half a megabyte of much the same words.
unpack(document.getElementById('sql')).then((sql) => {
  for (const pre of document.querySelectorAll('pre[data-query]')) pre.textContent = sql[pre.dataset.query];
});

// A link to a query opens it, in browsers that do not do so themselves.
const openTarget = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const closed = target && target.closest('details:not([open])');
  if (closed) { closed.open = true; target.scrollIntoView(); }
};
addEventListener('hashchange', openTarget);
openTarget();

// The section in view is marked in the contents.
const links = new Map([...contents.querySelectorAll('a')].map((link) => [link.getAttribute('href').slice(1), link]));
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((one) => one.isIntersecting && links.has(one.target.id))) {
    for (const link of links.values()) link.removeAttribute('aria-current');
    const link = links.get(entry.target.id);
    link.setAttribute('aria-current', 'true');
    link.scrollIntoView({block: 'nearest'});
  }
}, {rootMargin: '-10% 0px -80% 0px'});
for (const section of document.querySelectorAll('section')) watcher.observe(section);

const make = (name, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
};

// The runs that the reader chose: null is all.
const runIds = JSON.parse(document.getElementById('run-ids').textContent);
let chosen = null;

// Charts. A figure has one or many next to each other, each of a run or of all; those in view are drawn.
const vega = unpack(document.getElementById('vega')).then((program) => { (0, eval)(program); });

// The chart, so many pixels narrower: texts keep their size, only what is between them shrinks.
const narrowed = (spec, excess) => {
  const scaled = (part) => {
    const copy = {...part};
    if (copy.vconcat) copy.vconcat = copy.vconcat.map(scaled);
    if (copy.spec) copy.spec = scaled(copy.spec);
    if (typeof copy.width === 'number') copy.width = Math.max(90, copy.width - excess);
    return copy;
  };
  return scaled(spec);
};

// A text in lines of at most so many letters, where its words are not longer.
const inLines = (text, letters) => [text ?? []].flat().flatMap((one) => one.split(' ').reduce((lines, word) => {
  const last = lines.pop();
  if (last === undefined) return [word];
  return last.length + word.length < letters ? [...lines, `${last} ${word}`] : [...lines, last, word];
}, []));

// The chart for a narrow page: legends of at most so many columns, titles in lines, rows at least so high.
const forPhone = (part, look) => {
  if (Array.isArray(part)) return part.map((one) => forPhone(one, look));
  if (part === null || typeof part !== 'object') return part;
  const lines = (text) => inLines(text, look.letters);
  const lanes = (part.encoding ?? part.layer?.[0].encoding)?.yOffset?.sort?.length || 1; // of a row
  return Object.fromEntries(Object.entries(part).map(([key, value]) => {
    if (['datasets', 'data', 'transform', 'tooltip', 'y', 'header'].includes(key)) return [key, value];
    if (key === 'columns') return [key, Math.min(value, look.columns)];
    if (key === 'title' && typeof value === 'string') return [key, lines(value)];
    if (key === 'title' && value?.text) return [key, {...value, text: lines(value.text), subtitle: lines(value.subtitle)}];
    if (key === 'height' && value?.step) return [key, {...value, step: Math.max(value.step, look.step / lanes)}];
    return [key, forPhone(value, look)];
  }));
};

const draw = async (panel) => {
  const width = panel.element.closest('figure').clientWidth;
  panel.drawnFor = width;
  const narrow = width < 600;
  const characters = narrow ? 60 : 48;
  const run = panel.run ? `${panel.run}: ` : '';
  const caption = panel.element.closest('figure').querySelector('figcaption').textContent;
  const set = (value) => ({...value, description: run + caption, params: (value.params || []).map((param) => (
    param.name === 'label_characters' ? {...param, value: characters} : param.name === 'is_narrow' ? {...param, value: narrow}
      : param.name === 'shown_runs' ? {...param, value: shownRuns(panel)} : param))});
  const options = {mode: 'vega-lite', renderer: 'svg', actions: false};
  if (narrow) {
    const legend = {orient: 'top', columns: 2, titleLimit: width - 40, labelLimit: width - 60, layout: {top: {direction: 'vertical', anchor: 'start'}}};
    options.config = {legend, axisY: {maxExtent: 150}};
  }
  const target = panel.element.querySelector('.chart');
  const again = async (spec) => {
    if (panel.result) panel.result.finalize();
    panel.result = await vegaEmbed(target, set(spec), options);
    return spec;
  };
  let fitting = await again(narrow ? forPhone(panel.spec, {columns: 2, letters: (width - 30) / 7, step: 0}) : panel.spec);
  if (narrow) {
    const right = target.getBoundingClientRect().left + width - 8;
    const columns = [...target.querySelectorAll('.role-legend')].some((one) => one.getBoundingClientRect().right > right) ? 1 : 2;
    const lines = [...target.querySelectorAll('.role-axis-label text')].map((text) => text.querySelectorAll('tspan').length);
    const step = 13 * Math.max(0, ...lines); // names in lines
    options.config.legend.columns = columns;
    if (step || columns < 2) fitting = await again(forPhone(fitting, {columns, letters: Infinity, step}));
  }
  for (let tries = 0; tries < 6; tries += 1) { // labels may change with the width
    const excess = target.querySelector('svg').getBoundingClientRect().width - width;
    if (excess <= 0) break;
    fitting = await again(narrowed(fitting, excess + 2 * tries));
  }
  // groups without a mark, and the brush, have no name to be read out
  for (const group of target.querySelectorAll('[role="graphics-symbol"]:not([aria-label])')) {
    group.removeAttribute('role');
    group.removeAttribute('aria-roledescription');
  }
  panel.element.classList.add('drawn');
  const drawn = target.querySelector('svg').getBoundingClientRect();
  panel.element.classList.remove('high', 'slim', 'half');
  if (drawn.height > 480) panel.element.classList.add('high'); // in print more room, and two or three others in a row
  else if (drawn.width < 490) panel.element.classList.add(drawn.width < 345 ? 'slim' : 'half');
};

const save = async (panel, kind) => {
  const url = await panel.result.view.toImageURL(kind, kind === 'png' ? 2 : 1);
  const suffix = panel.run ? '-' + panel.run.replace(/[^\w.-]+/g, '_') : '';
  const link = make('a', {href: url, download: panel.name + suffix + '.' + kind});
  document.body.append(link);
  link.click();
  link.remove();
};

const drawing = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((one) => one.isIntersecting)) {
    drawing.unobserve(entry.target);
    draw(entry.target.panel);
  }
}, {rootMargin: '600px'});

// the runs of a chart with rows of many runs
const shownRuns = (panel) => chosen ?? (panel.figure.allRows ? panel.figure.runs : panel.figure.first);

class FigureView {
  constructor(element) {
    this.element = element;
    this.name = element.dataset.name;
    this.ready = this.load();
  }

  async load() {
    await vega;
    const {panels: found, first, runs, lead} = await unpack(document.getElementById('spec-' + this.name));
    this.first = first;
    this.runs = runs;
    const place = new Map([lead, ...runIds].map((run, number) => [run, number]).reverse()); // the first place of the lead
    this.panels = found.map((one) => ({...one, name: this.name, figure: this, element: null}));
    this.panels.sort((a, b) => (place.get(a.run) ?? 0) - (place.get(b.run) ?? 0));
    this.ofRuns = found.some((one) => place.has(one.run));
    this.limit = this.atFirst = this.firstRow();
    this.arrange();
  }

  // as many charts as stand next to each other; the one of a whole run stands alone
  firstRow() {
    const {spec} = this.panels[0];
    if (spec.vconcat) return 1;
    return (spec.width || spec.spec?.width) >= 300 ? 2 : 3;
  }

  arrange() {
    const matching = this.panels.filter((one) => !this.ofRuns || chosen === null || chosen.includes(one.run));
    const visible = matching.slice(0, this.limit);
    this.element.querySelector('.panels').replaceChildren(...visible.map((one) => this.box(one)));
    const left = matching.length - visible.length;
    const total = this.panels.length;
    const line = this.element.querySelector('.more');
    line.replaceChildren();
    if (this.ofRuns && (left || matching.length < total)) {
      line.append(`${visible.length} of ${total} runs are drawn. `);
      if (left) line.append(this.button(`Draw ${Math.min(left, 12)} more`, () => { this.limit += 12; this.arrange(); }));
      if (left > 12) line.append(' ', this.button('Draw all', () => { this.limit = Infinity; this.arrange(); }));
    } else if (!this.ofRuns && left) {
      line.append(`${visible.length} of ${total} panels are drawn. `, this.button('Draw all', () => { this.limit = Infinity; this.arrange(); }));
    } else if (this.first.length < this.runs.length && chosen === null && !this.allRows) {
      line.append(`${this.first.length} of ${this.runs.length} runs are drawn; choose others by their names above. `,
        this.button('Draw all', () => { this.allRows = true; this.redraw(); }));
    }
    line.hidden = !line.childNodes.length;
  }

  box(panel) {
    if (!panel.element) {
      const links = ['svg', 'png'].map((kind) => this.button(kind.toUpperCase(), () => save(panel, kind)));
      panel.element = make('div', {className: 'panel'}, make('div', {className: 'chart'}),
        make('p', {className: 'files'}, ...links));
      panel.element.panel = panel;
    }
    if (!panel.element.classList.contains('drawn')) drawing.observe(panel.element);
    return panel.element;
  }

  button(text, act) {
    const made = make('button', {type: 'button', textContent: text});
    made.addEventListener('click', act);
    return made;
  }

  redraw() {
    for (const panel of this.panels.filter((one) => one.element)) {
      panel.element.classList.remove('drawn');
      drawing.observe(panel.element);
    }
    this.arrange();
  }

  choose() {
    this.limit = this.atFirst;
    if (this.runs.length) this.redraw(); else this.arrange();
  }

  resize() {
    for (const panel of this.panels || []) {
      if (panel.drawnFor && Math.abs(panel.drawnFor - this.element.clientWidth) > 10) {
        panel.element.classList.remove('drawn');
        drawing.observe(panel.element);
      }
    }
  }
}
const figures = [...document.querySelectorAll('figure')].map((element) => new FigureView(element));
let waiting;
addEventListener('resize', () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => figures.forEach((figure) => figure.resize()), 200);
});
// all charts, also those that are not in view; tests wait for it
const drawAll = async () => {
  await Promise.all(figures.map((figure) => figure.ready));
  for (const figure of figures) for (const box of figure.element.querySelectorAll('.panel:not(.drawn)')) await draw(box.panel);
};
// A page that is printed is not waited for, but for what needs nothing but promises that are kept already: all that
// vegaEmbed does. A browser without a window prints when the page is loaded, which an image on its way puts off.
addEventListener('beforeprint', () => {
  for (const figure of figures) for (const box of figure.element.querySelectorAll('.panel:not(.drawn)')) draw(box.panel);
});
let unpacked = false;
Promise.all(figures.map((figure) => figure.ready)).then(() => { unpacked = true; });
const holdLoading = () => {
  const image = new Image();
  image.onload = () => { if (!unpacked) holdLoading(); };
  image.src = URL.createObjectURL(new Blob(['<svg xmlns="http://www.w3.org/2000/svg"/>'], {type: 'image/svg+xml'}));
};
holdLoading();

// Tables: sorted by a click on a column's title, filtered by words, and by the chosen runs. A long one has its first
// rows as elements, and the others when a reader asks for them.
class TableView {
  constructor(element) {
    this.titles = [...element.querySelectorAll('th')];
    this.body = element.querySelector('tbody');
    this.rows = [...this.body.rows].map((made) => ({
      made, run: made.dataset.run, cells: [...made.cells].map((cell) => cell.textContent),
      values: [...made.cells].map((cell) => cell.dataset.value)}));
    this.words = '';
    const packed = document.getElementById(element.id.replace('table-', 'rows-'));
    this.limit = packed ? this.rows.length : Infinity;
    this.line = packed && packed.nextElementSibling;
    this.ready = packed ? unpack(packed).then((later) => {
      this.rows.push(...later.map(([cells, values, run]) => ({cells, values, run})));
      this.show();
    }) : Promise.resolve();
    this.titles.forEach((title, place) => {
      const text = title.textContent, last = text.slice(text.lastIndexOf(' ') + 1);
      const kept = make('span', {className: 'kept'}); // no arrow stands alone in a line
      kept.append(last, make('button', {type: 'button', className: 'sort', ariaLabel: 'Sort by ' + text}));
      title.replaceChildren(text.slice(0, text.length - last.length), kept);
      title.addEventListener('click', () => this.sort(title, place));
    });
    if (this.rows.length > 8) {
      const filter = make('input', {type: 'search', placeholder: 'filter rows', ariaLabel: 'Filter rows', className: 'filter'});
      filter.addEventListener('input', () => { this.words = filter.value.toLowerCase(); this.show(); });
      element.before(filter);
    }
  }

  sort(title, place) {
    const up = title.getAttribute('aria-sort') !== 'ascending';
    for (const other of title.parentNode.cells) other.removeAttribute('aria-sort');
    title.setAttribute('aria-sort', up ? 'ascending' : 'descending');
    const key = ({cells, values}) => {
      if (!title.classList.contains('number')) return cells[place];
      return Number(values[place] ?? parseFloat(cells[place].replaceAll(',', '')));
    };
    const missing = (value) => value === '–' || Number.isNaN(value); // comes last, both ways
    const order = (a, b) => (missing(a) || missing(b) ? missing(a) - missing(b)
      : (up ? 1 : -1) * (typeof a === 'number' ? a - b : a.localeCompare(b, undefined, {numeric: true})));
    this.rows.sort((a, b) => order(key(a), key(b)));
    this.show();
  }

  show() {
    const matching = this.rows.filter(({cells, run}) => cells.join(' ').toLowerCase().includes(this.words)
      && (chosen === null || !run || chosen.includes(run)));
    this.body.replaceChildren(...matching.slice(0, this.limit).map((row) => (row.made ??= this.element(row))));
    if (!this.line) return;
    const left = matching.length - this.body.rows.length;
    this.line.replaceChildren();
    if (left > 0) {
      const all = make('button', {type: 'button', textContent: 'Show all'});
      all.addEventListener('click', () => { this.limit = Infinity; this.show(); });
      this.line.append(`${this.body.rows.length} of ${matching.length} rows are here. `, all);
    }
  }

  element({cells, run}) {
    const row = make('tr', {}, ...cells.map((cell, place) => make('td', {className: this.titles[place].className}, cell)));
    if (run) row.dataset.run = run;
    return row;
  }
}
const tables = [...document.querySelectorAll('.table')].map((element) => new TableView(element));

// The choice of runs: a name, a part of one, or a pattern with * and ?.
const chooser = document.getElementById('chooser');
if (chooser) {
  chooser.hidden = false;
  const input = document.getElementById('run');
  const said = document.getElementById('chosen');
  const choose = () => {
    const text = input.value.trim();
    const escaped = text.replace(/[.+^${}()|[\]\\]/g, '\\$&').replaceAll('*', '.*').replaceAll('?', '.');
    const pattern = new RegExp(/[*?]/.test(text) ? `^${escaped}$` : escaped, 'i');
    const matching = runIds.includes(text) ? [text] : runIds.filter((run) => pattern.test(run));
    chosen = text ? matching : null;
    said.textContent = !text ? '' : matching.length ? `${matching.length} of ${runIds.length} in charts and tables; sentences are of all runs` : 'no run has such a name';
    figures.forEach((figure) => figure.ready.then(() => figure.choose()));
    tables.forEach((table) => table.show());
  };
  let typing;
  input.addEventListener('input', () => {
    clearTimeout(typing);
    typing = setTimeout(choose, 200);
  });
}
