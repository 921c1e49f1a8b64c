// In a block of its own: Vega's bundle has names of its own at the top.
{
const $ = (id) => document.getElementById(id);
const COLOURS = ['#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#8c6d31', '#7b4173', '#637939', '#843c39'];

// Rows of the chosen runs. series, the colour: the run, or of a single run the host that sends or trains.
const rows = (runs) => {
  const windows = [], steps = [];
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
  }
  return {windows, steps};
};

const filters = (...names) => names.map((param) => ({filter: {param}}));
const chosenOpacity = (param) => ({condition: {param, value: 1}, value: 0.25});
const point = (name, fields) => ({name, select: {type: 'point', fields}});
const sum = (groupby) => ({aggregate: [{op: 'sum', field: 'bytes', as: 'bytes'}], groupby});

const spec = (most, width, datasets) => {
  const time = {field: 'since_s', type: 'quantitative', title: "time since the run's first packet (s)"};
  const series = {field: 'series', type: 'nominal', title: null, scale: {range: COLOURS}};
  const bytes = {field: 'bytes', type: 'quantitative', format: '.3s', title: 'wire bytes (B)'};
  const isNarrow = width < 700;
  return {
    config: {
      background: null, view: {stroke: '#bbb'}, legend: {labelColor: '#222222', titleColor: '#222222', orient: 'top', symbolLimit: 12, labelLimit: 400},
      axis: {labelColor: '#222222', titleColor: '#222222', gridColor: '#e6e6e6', domainColor: '#888', tickColor: '#888'},
    },
    datasets,
    vconcat: [
      {data: {name: 'windows'}, width, height: 190,
        transform: [...filters('pair', 'flow'), sum(['series', 'run', 'width_s', 'windows', 'window']),
          {impute: 'bytes', key: 'window', value: 0, keyvals: {start: 0, stop: most}, groupby: ['series', 'run', 'width_s', 'windows']},
          {filter: 'datum.window <= datum.windows'}, {calculate: 'datum.window * datum.width_s', as: 'since_s'},
          {calculate: 'datum.bytes * 8e-9 / datum.width_s', as: 'gbit_per_s'}],
        params: [{name: 'time', select: {type: 'interval', encodings: ['x']}}],
        mark: {type: 'line', interpolate: 'step-after', strokeWidth: 1.2},
        encoding: {x: time, y: {field: 'gbit_per_s', type: 'quantitative', title: 'throughput (Gbit/s)'}, color: series, detail: {field: 'run'}}},
      {data: {name: 'steps'}, width, height: 110, transform: filters('time'), mark: {type: 'rule', strokeWidth: 2},
        encoding: {x: time, x2: {field: 'until_s'}, y: {field: 'duration_ms', type: 'quantitative', title: 'step (ms)'}, color: series,
          tooltip: ['run', 'worker', 'step', 'duration_ms'].map((field) => ({field}))}},
      {columns: isNarrow ? 1 : 2, concat: [
        {data: {name: 'windows'}, width: isNarrow ? width - 120 : width * 0.36, height: 300, params: [point('pair', ['sender', 'receiver'])],
          transform: [...filters('time', 'flow'), sum(['sender', 'receiver'])], mark: 'rect',
          encoding: {x: {field: 'receiver', type: 'nominal', title: 'receiver', sort: 'ascending'}, y: {field: 'sender', type: 'nominal', title: 'sender'},
            color: {...bytes, scale: {scheme: 'blues'}, legend: {format: '.2s', orient: 'bottom'}}, opacity: chosenOpacity('pair'),
            tooltip: ['sender', 'receiver', 'bytes'].map((field) => ({field}))}},
        {data: {name: 'windows'}, width: isNarrow ? width - 120 : width * 0.36, height: 300, params: [point('flow', ['flow'])],
          transform: [...filters('time', 'pair'), sum(['flow', 'series']), {joinaggregate: [{op: 'sum', field: 'bytes', as: 'all'}], groupby: ['flow']},
            {window: [{op: 'dense_rank', as: 'place'}], sort: [{field: 'all', order: 'descending'}, {field: 'flow'}]}, {filter: 'datum.place <= 20'}],
          mark: 'bar', encoding: {y: {field: 'flow', type: 'nominal', title: null, sort: {field: 'all', order: 'descending'}, axis: {labelLimit: 230}},
            x: {...bytes, axis: {format: '.2s'}}, color: series, opacity: chosenOpacity('flow'),
            tooltip: ['flow', 'series', 'bytes'].map((field) => ({field}))}},
      ]},
    ],
    resolve: {scale: {color: 'shared'}},
  };
};

const start = async () => {
  const runs = await unpack($('data'));
  const most = Math.max(...runs.map((run) => run.windows)) + 1;
  const width = Math.max(240, Math.min(1040, $('main').clientWidth - 110));
  const list = $('runs');
  for (const run of runs) list.append(new Option(`${run.id} — ${run.about}`, run.id));
  const asked = new Set(new URLSearchParams(location.hash.slice(1)).getAll('run'));
  for (const option of list.options) option.selected = asked.has(option.value);
  if (!list.selectedOptions.length) list.options[0].selected = true;
  const chosen = () => runs.filter((run, i) => list.options[i].selected);
  const charts = spec(most, width, rows(chosen()));
  // the matrix has a scale of its own: bytes are no series
  charts.vconcat[2].resolve = {scale: {color: 'independent'}};
  const {view} = await vegaEmbed('#chart', charts, {mode: 'vega-lite', renderer: 'svg', actions: false});
  const show = () => {
    const found = rows(chosen());
    view.data('windows', found.windows).data('steps', found.steps).run();
    say();
  };
  const say = () => {
    $('chosen').textContent = chosen().map((run) => `${run.id} (${run.about}): windows of ${+(run.width_s * 1000).toPrecision(4)} ms${run.every > 1 ? `, one step of ${run.every}` : ''}`).join('; ');
    history.replaceState(null, '', `#${new URLSearchParams(chosen().map((run) => ['run', run.id]))}`);
  };
  list.addEventListener('change', show);
  $('words').addEventListener('input', () => {
    const words = $('words').value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const option of list.options) option.hidden = !words.every((word) => option.textContent.toLowerCase().includes(word));
  });
  say();
};
globalThis.drawn = start(); // a test waits for it
}
