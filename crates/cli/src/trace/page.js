'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const calls = data.calls;
const ROW = 24;
const $ = id => document.getElementById(id);
const make = (tag, className, text) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};

const time = ns => {
  if (ns === null || ns === undefined) return '–';
  if (ns < 1e3) return ns.toFixed(0) + ' ns';
  if (ns < 1e6) return (ns / 1e3).toFixed(0) + ' µs';
  if (ns < 1e8) return (ns / 1e6).toFixed(2) + ' ms';
  if (ns < 1e9) return (ns / 1e6).toFixed(0) + ' ms';
  return (ns / 1e9).toFixed(2) + ' s';
};
const size = bytes => {
  if (bytes === null || bytes === undefined) return '–';
  if (bytes < 1e3) return bytes + ' B';
  return bytes < 1e6 ? (bytes / 1e3).toFixed(1) + ' kB' : (bytes / 1e6).toFixed(1) + ' MB';
};
const percentile = (values, percent) => {
  const sorted = values.filter(value => value !== null).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.max(Math.ceil(sorted.length * percent / 100), 1) - 1] : null;
};
const id = call => call.tool_use_id || call.request_id || '';
const isFinished = call => call.outcome !== 'unfinished';
const totals = some => some.filter(isFinished).map(call => call.total_ns);

// The view: which calls, and which span of time.
const from = calls.length ? Math.min(...calls.slice(0, 1).map(call => call.start_ns)) : 0;
const whole = () => [Math.max(from - data.length_ns * 0.01, 0), Math.max(data.length_ns, 1)];
let view = whole();
let shown = calls;
const off = new Set();

function filter() {
  const tool = $('tool').value;
  const text = $('search').value.trim().toLowerCase();
  shown = calls.filter(call => (!tool || call.tool === tool) && !off.has(call.outcome)
    && (!text || [call.tool, call.tool_use_id, call.request_id, call.error_type, call.trace_id]
      .some(word => word && word.toLowerCase().includes(text))));
  draw();
}

function zoom(next) {
  const [least, most] = [0, Math.max(data.length_ns, 1)];
  const length = Math.min(Math.max(next[1] - next[0], 1000), most - least);
  const start = Math.min(Math.max(next[0], least), most - length);
  view = [start, start + length];
  draw();
}

function draw() {
  $('reset').hidden = view[0] <= whole()[0] && view[1] >= whole()[1];
  const number = calls.length === 1 ? '1 call' : calls.length + ' calls';
  $('shown').textContent = shown.length === calls.length ? number : shown.length + ' of ' + number;
  $('space').style.height = Math.max(shown.length * ROW, ROW) + 'px';
  drawScale();
  drawRows();
  drawOverview();
}

function drawScale() {
  const length = view[1] - view[0];
  const rough = length / 7;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(step => step >= rough);
  const [scale, grid] = [$('scale'), $('grid')];
  scale.replaceChildren();
  grid.replaceChildren();
  for (let at = Math.ceil(view[0] / step) * step; at < view[1]; at += step) {
    const tick = make('span', '', time(at));
    tick.style.left = (at - view[0]) / length * 100 + '%';
    scale.append(tick);
    const line = make('span');
    line.style.left = tick.style.left;
    grid.append(line);
  }
}

// Only the visible rows are in the DOM.
function drawRows() {
  const [rows, grid] = [$('rows'), $('grid')];
  const first = Math.max(Math.floor(rows.scrollTop / ROW) - 4, 0);
  const last = Math.min(first + Math.ceil((rows.clientHeight || 480) / ROW) + 8, shown.length);
  const length = view[1] - view[0];
  const nodes = [];
  for (let place = first; place < last; place++) {
    const call = shown[place];
    const row = make('div', 'row' + (call.outcome === 'ok' ? '' : ' bad') + (isFinished(call) ? '' : ' open'));
    row.style.top = place * ROW + 'px';
    row.dataset.place = place;
    const name = make('div', 'name');
    name.append(make('b', '', call.tool), make('small', '', id(call)));
    if (call.outcome !== 'ok') name.append(make('em', '', call.outcome));
    const lane = make('div', 'lane');
    for (const part of call.parts) {
      if (part.to_ns < view[0] || part.from_ns > view[1]) continue;
      const bar = make('span', 'part ' + part.kind);
      const begin = Math.max(part.from_ns, view[0]), end = Math.min(part.to_ns, view[1]);
      bar.style.left = (begin - view[0]) / length * 100 + '%';
      bar.style.width = (end - begin) / length * 100 + '%';
      lane.append(bar);
    }
    row.append(name, lane, make('div', 'time', isFinished(call) ? time(call.total_ns) : 'open'));
    nodes.push(row);
  }
  $('space').replaceChildren(grid, ...nodes);
}

function drawOverview() {
  const canvas = $('overview').querySelector('canvas');
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.width = Math.max(canvas.clientWidth * ratio, 1);
  const height = canvas.height = Math.max(canvas.clientHeight * ratio, 1);
  const pen = canvas.getContext('2d');
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
  const lanes = [];
  const least = Math.max(2 * ratio, 1);
  const x = at => at / Math.max(data.length_ns, 1) * width;
  const placed = shown.map(call => {
    const end = call.start_ns + Math.max(call.total_ns, least / width * data.length_ns);
    let lane = lanes.findIndex(free => free <= call.start_ns);
    if (lane < 0) lane = lanes.length;
    lanes[lane] = end;
    return lane;
  });
  const thick = Math.min(height / Math.max(lanes.length, 1), 8 * ratio);
  shown.forEach((call, place) => {
    for (const part of call.parts) {
      pen.fillStyle = call.outcome === 'ok' ? colours[part.kind] ||= colour(part.kind) : colours.bad ||= colour('bad');
      pen.fillRect(x(part.from_ns), placed[place] * thick, Math.max(x(part.to_ns) - x(part.from_ns), ratio), Math.max(thick - ratio, 1));
    }
  });
  const brush = $('overview').querySelector('.brush');
  brush.hidden = $('reset').hidden;
  brush.style.left = view[0] / Math.max(data.length_ns, 1) * 100 + '%';
  brush.style.width = (view[1] - view[0]) / Math.max(data.length_ns, 1) * 100 + '%';
}
let colours = {};

function tip(event) {
  const row = event.target.closest('.row');
  const box = $('tip');
  box.hidden = !row;
  if (!row) return;
  const call = shown[row.dataset.place];
  const list = make('dl');
  const lines = [
    ['outcome', call.outcome + (call.error_type ? ' (' + call.error_type + ')' : '')],
    ['started after', time(call.start_ns)], ['total', isFinished(call) ? time(call.total_ns) : 'open'],
    ['tool', time(call.tool_ns)], ['queue', time(call.queue_ns)], ['bridge and socket', time(call.bridge_ns)],
    ['arguments', size(call.arguments_bytes)], ['result', size(call.result_bytes)],
    ['tool use', call.tool_use_id], ['request', call.request_id], ['trace', call.trace_id],
    ['bridge process', call.bridge_pid], ['tool process', call.tool_pid],
  ];
  for (const [name, value] of lines) {
    if (value !== null && value !== undefined && value !== '–') list.append(make('dt', '', name), make('dd', '', value));
  }
  box.replaceChildren(make('h3', '', call.number + '. ' + call.tool), list);
  box.style.left = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8) + 'px';
  box.style.top = Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 8) + 'px';
}

function start() {
  $('when').textContent = new Date(data.began_ns / 1e6).toLocaleString() + ', ' + time(data.length_ns);
  const bad = calls.filter(call => call.outcome !== 'ok').length;
  const cards = [
    ['calls', calls.length], ['not ok', bad, bad ? 'bad' : ''], ['median call', time(percentile(totals(calls), 50))],
    ['99 % within', time(percentile(totals(calls), 99))], ['median in the tool', time(percentile(calls.map(call => call.tool_ns), 50))],
    ['median on the way', time(percentile(calls.map(call => call.bridge_ns), 50))],
    ['longest queue', time(percentile(calls.map(call => call.queue_ns), 100))],
  ];
  for (const [name, value, kind] of cards) {
    const card = make('div', 'card ' + (kind || ''));
    card.append(make('b', '', value), make('span', '', name));
    $('cards').append(card);
  }
  const tools = [...new Set(calls.map(call => call.tool))].sort();
  $('tool').append(new Option('all', ''), ...tools.map(tool => new Option(tool, tool)));
  for (const outcome of [...new Set(calls.map(call => call.outcome))].sort()) {
    const count = calls.filter(call => call.outcome === outcome).length;
    const chip = make('button', outcome === 'ok' ? 'good' : 'bad', count + ' ' + outcome);
    chip.type = 'button';
    chip.setAttribute('aria-pressed', 'true');
    chip.onclick = () => {
      const isOn = off.delete(outcome) || (off.add(outcome), false);
      chip.setAttribute('aria-pressed', String(isOn));
      filter();
    };
    $('outcomes').append(chip);
  }
  const head = make('tr');
  for (const title of ['tool', 'calls', 'not ok', 'median', '90 %', 'longest', 'tool', 'queue', 'bridge', 'where the time goes', 'arguments', 'results']) head.append(make('th', '', title));
  $('tools').tHead.append(head);
  const sum = (some, key) => some.reduce((sum, call) => sum + (call[key] || 0), 0);
  const rows = tools.map(tool => [tool, calls.filter(call => call.tool === tool)]);
  rows.sort((a, b) => sum(b[1], 'total_ns') - sum(a[1], 'total_ns'));
  for (const [tool, some] of rows) {
    const row = make('tr');
    const failed = some.filter(call => call.outcome !== 'ok').length;
    const half = key => time(percentile(some.map(call => call[key]), 50));
    for (const cell of [tool, some.length]) row.append(make('td', '', cell));
    const failures = make('td');
    failures.append(make('span', failed ? 'bad' : '', failed || '–'));
    row.append(failures);
    for (const percent of [50, 90, 100]) row.append(make('td', '', time(percentile(totals(some), percent))));
    for (const key of ['tool_ns', 'queue_ns', 'bridge_ns']) row.append(make('td', '', half(key)));
    const share = make('span', 'share');
    const parts = {};
    for (const call of some) for (const part of call.parts) parts[part.kind] = (parts[part.kind] || 0) + part.to_ns - part.from_ns;
    const all = Object.values(parts).reduce((sum, part) => sum + part, 0) || 1;
    for (const kind of ['bridge', 'queue', 'tool', 'parent']) {
      const piece = make('span', 'part ' + kind);
      piece.style.width = (parts[kind] || 0) / all * 100 + '%';
      piece.style.minWidth = 0;
      share.append(piece);
    }
    const where = make('td');
    where.append(share);
    row.append(where, make('td', '', size(sum(some, 'arguments_bytes'))), make('td', '', size(sum(some, 'result_bytes'))));
    row.onclick = () => { $('tool').value = $('tool').value === tool ? '' : tool; filter(); };
    $('tools').tBodies[0].append(row);
  }
  for (const mark of data.marks) {
    const row = make('tr');
    for (const cell of [time(mark.at_ns), mark.what, 'process ' + mark.pid]) row.append(make('td', '', cell));
    $('marks').tBodies[0].append(row);
  }

  $('tool').onchange = $('search').oninput = filter;
  $('reset').onclick = () => zoom(whole());
  const rowsBox = $('rows');
  rowsBox.onscroll = drawRows;
  rowsBox.onmousemove = tip;
  rowsBox.onmouseleave = () => { $('tip').hidden = true; };
  rowsBox.addEventListener('wheel', event => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const lane = rowsBox.querySelector('.lane');
    if (!lane) return;
    const box = lane.getBoundingClientRect();
    const at = view[0] + (event.clientX - box.left) / box.width * (view[1] - view[0]);
    const factor = event.deltaY > 0 ? 1.25 : 0.8;
    zoom([at - (at - view[0]) * factor, at + (view[1] - at) * factor]);
  }, { passive: false });
  rowsBox.onpointerdown = event => {
    if (!event.target.closest('.lane')) return;
    const [x, begin, width] = [event.clientX, view, event.target.closest('.lane').clientWidth];
    const move = event => {
      const by = (x - event.clientX) / width * (begin[1] - begin[0]);
      zoom([begin[0] + by, begin[1] + by]);
    };
    addEventListener('pointermove', move);
    addEventListener('pointerup', () => removeEventListener('pointermove', move), { once: true });
  };
  const overview = $('overview');
  overview.onpointerdown = event => {
    const box = overview.getBoundingClientRect();
    const at = event => Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1) * data.length_ns;
    const first = at(event);
    const move = event => {
      const second = at(event);
      if (Math.abs(second - first) / data.length_ns > 0.002) zoom([Math.min(first, second), Math.max(first, second)]);
    };
    addEventListener('pointermove', move);
    addEventListener('pointerup', () => removeEventListener('pointermove', move), { once: true });
  };
  overview.ondblclick = () => zoom(whole());
  addEventListener('keydown', event => { if (event.key === 'Escape') zoom(whole()); });
  addEventListener('resize', draw);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { colours = {}; draw(); });
  filter();
}
start();
