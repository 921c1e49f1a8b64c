// In a block of its own: Vega's bundle has names of its own at the top.
{
const $ = (id) => document.getElementById(id);
// As in the report's charts (style.COLLECTIVES).
const KINDS = {all_reduce: '#0072B2', all_gather: '#56B4E9', reduce_scatter: '#009E73', all_to_all: '#D55E00', send: '#E69F00'};
const COLOURS = ['#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#8c6d31', '#7b4173', '#637939', '#843c39'];
// Of more series than colours the lines have one of these dashes, the same for all of ten.
const DASHES = [[1, 0], [6, 2], [2, 2], [8, 2, 2, 2]].flatMap((dash) => COLOURS.map(() => dash));

// Rows of the chosen runs. series, the colour: the run, or of a single run the host that sends or trains.
const rows = (runs) => {
  const windows = [], steps = [], collectives = [];
  for (const run of runs) {
    const name = (host) => (runs.length > 1 ? run.id : host);
    run.window.forEach((window, i) => {
      const [sender, receiver, flow] = run.flows[run.flow[i]];
      windows.push({run: run.id, sender, receiver, flow, series: name(sender), window, bytes: run.bytes[i], since_s: window * run.width_s,
        width_s: run.width_s, windows: run.windows});
    });
    for (const [worker, step, since_s, duration_ms] of run.steps) {
      steps.push({run: run.id, worker, step, series: name(worker), since_s, until_s: since_s + duration_ms / 1000, duration_ms});
    }
    for (const [track, step, position, kind, since_s, until_s, payload] of run.collectives) {
      collectives.push({run: run.id, track: runs.length > 1 ? `${track} of ${run.id}` : track, step, position, kind, since_s, until_s, payload});
    }
  }
  return {windows, steps, collectives};
};

const filters = (...names) => names.map((param) => ({filter: {param}}));
const chosenOpacity = (param) => ({condition: {param, value: 1}, value: 0.25});
const point = (name, fields) => ({name, select: {type: 'point', fields}});
const sum = (groupby) => ({aggregate: [{op: 'sum', field: 'bytes', as: 'bytes'}], groupby});

// The rates of these in all windows of their runs, also those in which nothing is sent.
const rates = (most, ...of) => [...filters('pair', 'flow'), sum([...of, 'width_s', 'windows', 'window']),
  {impute: 'bytes', key: 'window', value: 0, keyvals: {start: 0, stop: most}, groupby: [...of, 'width_s', 'windows']},
  {filter: 'datum.window <= datum.windows'}, {calculate: 'datum.window * datum.width_s', as: 'since_s'},
  {calculate: 'datum.bytes * 8e-9 / datum.width_s', as: 'gbit_per_s'}];

// Names once each, W2 before W10: what an axis or a legend has, in its order.
const natural = (names) => [...new Set(names)].sort((a, b) => a.localeCompare(b, 'en', {numeric: true}));
const domains = ({windows, steps, collectives}) => ({
  names: natural([...windows, ...steps].map((row) => row.series)), senders: natural(windows.map((row) => row.sender)),
  receivers: natural(windows.map((row) => row.receiver)), tracks: natural(collectives.map((row) => row.track)),
});
const domain = (expr) => ({scale: {domain: {expr}}});

const BYTES = "replace(format(datum.value, '.6~s'), regexp('([a-zA-Z]?)$'), ' $1B')";
// The time of the steps and collectives of the runs, with a little around it: what the charts show at first. Null where that is nearly all.
const training = ({steps, collectives}, end_s) => {
  const rows = [...steps, ...collectives];
  const begin = rows.reduce((least, row) => Math.min(least, row.since_s), Infinity), last = rows.reduce((most, row) => Math.max(most, row.until_s), -Infinity);
  const around = 0.03 * (last - begin), from = Math.max(0, begin - around), to = Math.min(end_s, last + around);
  return to - from > 0 && to - from < 0.9 * end_s ? [from, to] : null;
};
const end = (runs) => Math.max(...runs.map((run) => (run.windows + 1) * run.width_s));

// What decides the charts and their sizes: the datasets of the chosen runs that have rows, senders, receivers and flows.
const outline = (found) => {
  const count = (name) => new Set(found.windows.map((row) => row[name])).size;
  return {drawn: Object.keys(found).filter((name) => found[name].length), senders: count('sender'), receivers: count('receiver'), flows: count('flow')};
};
const CELL = 60, BAR = 26, LABEL = 400; // pixels, at most

// As many names beside each other as the width has room for: Vega lays all out in one row, and cuts it.
const legendColumns = (datasets, width) => {
  const longest = Math.max(0, ...new Set(Object.values(datasets).flatMap((rows) => rows.map((row) => (row.series ?? row.kind).length))));
  return Math.max(1, Math.floor(width / (Math.min(LABEL, 6 * longest) + 30)));
};

const spec = (most, width, end_s, datasets) => {
  const {drawn, senders, receivers, flows} = outline(datasets); // Vega warns of a chart without rows
  const charted = (name, chart) => (drawn.includes(name) ? [chart] : []);
  const time = {field: 'since_s', type: 'quantitative', title: "time since the run's first packet (s)"};
  const whole = {...time, title: 'all of the time: draw here to choose a part (s)', scale: {nice: false, domain: [0, {expr: 'end_s'}]}};
  const zoomed = {...time, scale: {nice: false, domain: ['time.since_s ? time.since_s[0] : 0', 'time.since_s ? time.since_s[1] : end_s'].map((expr) => ({expr}))}};
  const series = {field: 'series', type: 'nominal', title: null, scale: {...domain('names').scale, range: COLOURS}};
  const bytes = {field: 'bytes', type: 'quantitative', format: '.3s', title: 'wire bytes (B)'};
  const isNarrow = width < 700;
  const inside = {labelAlign: 'left', labelPadding: -4, labelOffset: -11, labelLimit: width, ticks: false, domain: false}; // above the marks
  return {
    config: {
      background: null, view: {stroke: '#bbb'}, legend: {labelColor: '#222222', titleColor: '#222222', orient: 'top', symbolLimit: 64, labelLimit: LABEL, columns: legendColumns(datasets, width)},
      axis: {labelColor: '#222222', titleColor: '#222222', gridColor: '#e6e6e6', domainColor: '#888', tickColor: '#888'},
    },
    datasets,
    params: Object.entries({end_s, ...domains(datasets)}).map(([name, value]) => ({name, value})),
    vconcat: [
      {data: {name: 'windows'}, width, height: 190, transform: rates(most, 'series', 'run'),
        mark: {type: 'line', interpolate: 'step-after', strokeWidth: 1.2, clip: true},
        encoding: {x: zoomed, y: {field: 'gbit_per_s', type: 'quantitative', title: 'throughput (Gbit/s)'}, color: series,
          strokeDash: {field: 'series', type: 'nominal', title: null, scale: {...domain('names').scale, range: DASHES}}, detail: {field: 'run'}}},
      {data: {name: 'windows'}, width, height: 36, transform: rates(most, 'run'), params: [{name: 'time', select: {type: 'interval', encodings: ['x']}}],
        mark: {type: 'area', interpolate: 'step-after', color: '#888', opacity: 0.6},
        encoding: {x: whole, y: {field: 'gbit_per_s', type: 'quantitative', title: null, stack: null, axis: {tickCount: 1}}, detail: {field: 'run'}}},
      ...charted('steps', {data: {name: 'steps'}, width, height: 110, transform: filters('time'), mark: {type: 'rule', strokeWidth: 2},
        encoding: {x: zoomed, x2: {field: 'until_s'}, y: {field: 'duration_ms', type: 'quantitative', title: 'step (ms)'}, color: {...series, legend: null},
          tooltip: ['run', 'worker', 'step', 'duration_ms'].map((field) => ({field}))}}),
      ...charted('collectives', {data: {name: 'collectives'}, width, height: {step: 32}, transform: filters('time'),
        // the tick: what is shorter than a pixel
        layer: [{mark: {type: 'rule', strokeWidth: 10, yOffset: 7}, encoding: {x2: {field: 'until_s'}}}, {mark: {type: 'tick', height: 10, thickness: 1, yOffset: 7}}],
        encoding: {x: zoomed, color: {field: 'kind', type: 'nominal', title: null, scale: {domain: Object.keys(KINDS), range: Object.values(KINDS)}},
          y: {field: 'track', type: 'nominal', title: null, axis: {...inside, labelOffset: -8}, ...domain('tracks')},
          tooltip: ['run', 'track', 'step', 'position', 'kind', 'since_s', 'until_s', 'payload'].map((field) => ({field}))}}),
      {columns: isNarrow ? 1 : 2, concat: [
        {data: {name: 'windows'}, width: Math.min(isNarrow ? width : width * 0.36, CELL * receivers), height: Math.min(300, CELL * senders), params: [point('pair', ['sender', 'receiver'])],
          transform: [...filters('time', 'flow'), sum(['sender', 'receiver'])], mark: 'rect',
          encoding: {x: {field: 'receiver', type: 'nominal', title: 'receiver', ...domain('receivers')}, y: {field: 'sender', type: 'nominal', title: 'sender', ...domain('senders')},
            color: {...bytes, scale: {type: 'log', nice: true, scheme: 'yellowgreenblue'}, legend: {labelExpr: BYTES, orient: 'bottom', labelOverlap: 'greedy', labelSeparation: 8}}, opacity: chosenOpacity('pair'),
            tooltip: ['sender', 'receiver', 'bytes'].map((field) => ({field}))}},
        {data: {name: 'windows'}, width: isNarrow ? width : width * 0.36, height: isNarrow ? {step: BAR} : Math.min(300, BAR * flows), params: [point('flow', ['flow'])],
          transform: [...filters('time', 'pair'), sum(['flow', 'series']), {joinaggregate: [{op: 'sum', field: 'bytes', as: 'all'}], groupby: ['flow']},
            {window: [{op: 'dense_rank', as: 'place'}], sort: [{field: 'all', order: 'descending'}, {field: 'flow'}]}, {filter: 'datum.place <= 20'}],
          mark: isNarrow ? {type: 'bar', height: 8} : 'bar', encoding: {y: {field: 'flow', type: 'nominal', title: null, sort: {field: 'all', order: 'descending'}, axis: isNarrow ? inside : {labelLimit: 230}},
            x: {...bytes, axis: {labelExpr: BYTES}}, color: {...series, legend: null}, opacity: chosenOpacity('flow'),
            tooltip: ['flow', 'series', 'bytes'].map((field) => ({field}))}},
      ]},
    ],
    resolve: {scale: {color: 'shared'}},
  };
};

// What the address keeps: the chosen runs, what they were chosen by, and the choices in charts.
const FACETS = ['framework', 'backend', 'model', 'topology', 'hosts'];
const address = new URLSearchParams(location.hash.slice(1));
const keep = (name, values) => {
  address.delete(name);
  for (const value of values) address.append(name, value);
  address.sort();
  history.replaceState(null, '', `#${address}`);
};
// A choice in a chart as its parameter has it, and as the address has it.
const CHOICES = {
  time: {read: (text) => ({x: text.split(',').map(Number)}), write: ({since_s}) => (since_s ? [since_s.map((s) => +s.toPrecision(9)).join(',')] : [])},
  pair: {read: JSON.parse, write: ({vlPoint}) => (vlPoint ? [JSON.stringify(vlPoint.or.map(({sender, receiver}) => ({sender, receiver})))] : [])},
  flow: {read: JSON.parse, write: ({vlPoint}) => (vlPoint ? [JSON.stringify(vlPoint.or.map(({flow}) => ({flow})))] : [])},
};
const restore = (part, first) => {
  for (const inner of part.vconcat || part.concat || []) restore(inner, first);
  for (const param of part.params || []) {
    if (param.name === 'time' && first) param.value = {x: first};
    try {
      if (address.has(param.name)) param.value = CHOICES[param.name].read(address.get(param.name));
    } catch { /* an address that somebody shortened */ }
  }
};

// A choice of runs by their settings, each value with how many runs have it among those that the other choices leave.
const facets = (runs, changed) => {
  const chosen = Object.fromEntries(FACETS.map((name) => [name, address.get(name) || '']));
  const words = () => $('words').value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (run, but) => FACETS.every((name) => name === but || !chosen[name] || run.settings[name] === chosen[name]) &&
    words().every((word) => `${run.id} ${run.about}`.toLowerCase().includes(word));
  const draw = () => {
    $('facets').replaceChildren(...FACETS.map((name) => {
      const counts = new Map();
      for (const run of runs) if (fits(run, name)) counts.set(run.settings[name], (counts.get(run.settings[name]) || 0) + 1);
      const label = document.createElement('label'), select = document.createElement('select');
      select.append(new Option(`all (${[...counts.values()].reduce((a, b) => a + b, 0)})`, ''));
      const values = natural(counts.keys());
      for (const value of values) select.append(new Option(`${value} (${counts.get(value)})`, value));
      select.value = counts.has(chosen[name]) ? chosen[name] : '';
      select.addEventListener('change', () => {
        chosen[name] = select.value;
        keep(name, select.value ? [select.value] : []);
        draw();
        [...$('facets').querySelectorAll('select')][FACETS.indexOf(name)].focus();
      });
      label.append(`${name} `, select);
      return label;
    }));
    changed((run) => fits(run));
  };
  $('words').value = address.get('words') || '';
  $('words').addEventListener('input', () => { keep('words', words().length ? [words().join(' ')] : []); draw(); });
  draw();
};

const start = async () => {
  const runs = await unpack($('data'));
  for (const run of runs) {
    const {framework, backend, model, topology, hosts} = run.settings;
    run.about = [framework, backend, model, topology, `${hosts} hosts`, ...(run.measured ? [] : ['not measured'])].filter((word) => word !== 'not known').join(', ');
  }
  const most = Math.max(...runs.map((run) => run.windows)) + 1;
  const width = Math.max(240, Math.min(1040, $('main').clientWidth - 110));
  const list = $('runs');
  for (const run of runs) list.append(new Option(`${run.id} — ${run.about}`, run.id));
  facets(runs, (fits) => runs.forEach((run, i) => { list.options[i].hidden = !fits(run); }));
  const asked = new Set(address.getAll('run'));
  for (const option of list.options) option.selected = asked.has(option.value);
  if (!list.selectedOptions.length) ([...list.options].find((option) => !option.hidden) || list.options[0]).selected = true;
  const chosen = () => runs.filter((run, i) => list.options[i].selected);
  let view, drawnAs;
  const embed = async (found) => {
    const charts = spec(most, width, end(chosen()), found);
    // series, kinds and bytes have colours of their own
    charts.vconcat.at(-1).resolve = charts.resolve = {scale: {color: 'independent', strokeDash: 'independent'}};
    restore(charts, training(found, end(chosen())));
    view?.finalize();
    ({view} = await vegaEmbed('#chart', charts, {mode: 'vega-lite', renderer: 'svg', actions: false}));
    for (const [name, {write}] of Object.entries(CHOICES)) view.addSignalListener(name, (_, value) => keep(name, write(value)));
  };
  const draw = async () => {
    const found = rows(chosen()), wanted = {...outline(found), first: training(found, end(chosen()))};
    if (JSON.stringify(wanted) !== JSON.stringify(drawnAs)) await embed(found);
    else {
      for (const name of wanted.drawn) view.data(name, found[name]);
      for (const [name, value] of Object.entries({end_s: end(chosen()), ...domains(found)})) view.signal(name, value);
      await view.runAsync();
    }
    drawnAs = wanted;
  };
  await draw();
  // Steps that the collectives show; of thinned ones the number is not known.
  const logless = (run) => (run.collectives.length && run.every_collectives === 1 ? ` (collectives of ${new Set(run.collectives.map((row) => row[1])).size} steps are seen)` : '');
  const say = () => {
    const thinned = (every, what) => (every > 1 ? `, ${what} of one step of ${every}` : '');
    $('chosen').textContent = chosen().map((run) => `${run.id} (${run.about}): windows of ${+(run.width_s * 1000).toPrecision(4)} ms` +
      thinned(run.every, 'times') + thinned(run.every_collectives, 'collectives') +
      (run.steps.length ? '' : `, no training log and so no chart of steps${logless(run)}`) + (run.collectives.length ? '' : ', no collectives seen')).join('; ');
    keep('run', chosen().map((run) => run.id));
  };
  list.addEventListener('change', () => {
    globalThis.drawn = draw(); // a test waits for it
    say();
  });
  say();
};
globalThis.drawn = start(); // a test waits for it
}
